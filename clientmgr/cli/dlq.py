"""`clientmgr dlq …`: messages that could not be handled. All commands take the same filters, see `dlq_filters`."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated

import msgspec
import typer

from clientmgr.audit.log import AuditLogger
from clientmgr.base.database import Role
from clientmgr.base.errors import InvalidInputError, PermanentError
from clientmgr.base.masking import masked, masked_data, masked_words
from clientmgr.broker import dead_letter_actions as actions
from clientmgr.broker.dead_letters import (
    DeadLetter,
    LetterCount,
    Selection,
    State,
    as_counted,
    counts,
    letters,
    summaries,
)
from clientmgr.cli.dlq_filters import with_filters
from clientmgr.cli.message_output import data_fields, pretty
from clientmgr.cli.output import (
    JsonOption,
    RevealOption,
    YesOption,
    actor,
    console,
    open_database,
    print_json,
    progress_bar,
    show_record,
    show_rows,
)

app = typer.Typer(help="Messages that could not be handled: list, show, replay, drop.", no_args_is_help=True)

AllOption = Annotated[bool, typer.Option("--all", help="Really all; needed where no filter is given.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", "-n", help="Only tell what would be done.")]


@app.command("list")
@with_filters
def list_command(
    selection: Selection,
    *,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest first.")] = 50,
    count: Annotated[bool, typer.Option("--count", help="Only how many, by topic, subscription and error.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List dead letters: those that nobody has replayed yet, or what the filters choose."""
    database, _ = open_database()
    with database.connect(Role.READER, autocommit=True) as connection:
        if count:
            _show_counts(counts(connection, selection), as_json=as_json)
            return
        rows = [asdict(summary) for summary in summaries(connection, selection, limit=limit)]
    rows = [{**row, "exception": masked_words(row["exception"])} for row in rows]
    if not as_json:
        rows = [{**row, "error": _error(row["error_class"], row["exception"])} for row in rows]
    columns = ["id", "failed_at", "topic", "subscription", "tenant", "key", "attempts", "replayed_at", "error"]
    show_rows(rows, columns, as_json=as_json, empty="no dead letters")


@app.command()
def show(
    ids: Annotated[list[int], typer.Argument(metavar="ID...")],
    *,
    reveal: RevealOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show dead letters with their contents, attributes and error. Push tokens and web push keys are masked."""
    database, settings = open_database()
    with database.connect(Role.READER, autocommit=True) as connection:
        found = letters(connection, ids)
    if not reveal:
        found = [_masked(letter) for letter in found]
    elif found:
        entries = [actions.revealed(letter, actor=actor(), command="dlq show") for letter in found]
        with database.connect(Role.WRITER) as connection:
            AuditLogger.from_settings(settings).append(connection, entries)
    if as_json:
        documents = [{**_without_data(letter), **data_fields(letter.data)} for letter in found]
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(documents), indent=2).decode() + "\n")
    else:
        for letter in found:
            show_record({**_without_data(letter), "bytes": len(letter.data)})
            console.print(pretty(letter.data), markup=False, highlight=False, soft_wrap=True)
            console.print()
    missing = sorted(set(ids) - {letter.id for letter in found})
    if missing:
        raise PermanentError(f"there is no dead letter {', '.join(map(str, missing))}")


@app.command()
@with_filters
def replay(
    selection: Selection,
    *,
    everything: AllOption = False,
    again: Annotated[bool, typer.Option("--again", help="Also those that were replayed before.")] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Publish dead letters again, unchanged, for the subscription alone in which they failed. Safe to repeat."""
    _require_filter(selection, everything=everything)
    if again and selection.state is State.OPEN:
        selection = replace(selection, state=State.ANY)
    database, settings = open_database()
    with database.connect(Role.WRITER, autocommit=True) as connection:
        counted = counts(connection, selection)
        if not _agreed("replay", counted, dry_run=dry_run, yes=yes, as_json=as_json):
            return
        with progress_bar("replaying", _total(counted)) as progress:
            results = actions.replay(
                connection,
                as_counted(selection, counted),
                AuditLogger.from_settings(settings),
                settings=settings,
                actor=actor(),
                again=again,
                on_progress=lambda done: progress.advance(progress.task_ids[0], done),
            )
    rows = [asdict(result) for result in results]
    show_rows(rows, ["topic", "subscription", "replayed", "skipped", "problem"], as_json=as_json, empty="")
    if any(result.problem for result in results):
        raise typer.Exit(1)


@app.command()
@with_filters
def drop(
    selection: Selection,
    *,
    everything: AllOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete dead letters for good. The audit log keeps who did it, of which subscription and how many."""
    _require_filter(selection, everything=everything)
    database, settings = open_database()
    with database.connect(Role.WRITER, autocommit=True) as connection:
        counted = counts(connection, selection)
        if not _agreed("drop", counted, dry_run=dry_run, yes=yes, as_json=as_json):
            return
        with progress_bar("dropping", _total(counted)) as progress:
            dropped = actions.drop(
                connection,
                as_counted(selection, counted),
                AuditLogger.from_settings(settings),
                actor=actor(),
                on_progress=lambda done: progress.advance(progress.task_ids[0], done),
            )
    if as_json:
        print_json({"dropped": dropped})
    else:
        console.print(f"{dropped} dropped", highlight=False)


def _require_filter(selection: Selection, *, everything: bool) -> None:
    """Refuse to take everything because somebody forgot the filter."""
    if replace(selection, state=State.OPEN) == Selection() and not everything:
        raise InvalidInputError("filters", "at least one, or --all", "none")


def _agreed(what: str, counted: Sequence[LetterCount], *, dry_run: bool, yes: bool, as_json: bool) -> bool:
    """Whether to go on: there is something to do, and it was confirmed. If not, says why."""
    if dry_run or not counted:
        _show_counts(counted, as_json=as_json)
        if dry_run and not as_json:
            console.print(f"would {what} {_total(counted)}; nothing was done", highlight=False)
        return False
    if not yes:
        if not as_json:
            _show_counts(counted, as_json=False)
        typer.confirm(f"{what.capitalize()} {_total(counted)}?", abort=True, err=True)
    return True


def _show_counts(counted: Sequence[LetterCount], *, as_json: bool) -> None:
    rows = [
        {name: value for name, value in asdict(count).items() if name not in {"newest_id", "topic_id"}}
        for count in counted
    ]
    columns = ["topic", "subscription", "letters", "replayed", "first_failed_at", "last_failed_at", "error_class"]
    show_rows(rows, columns, as_json=as_json, empty="no dead letters")


def _total(counted: Sequence[LetterCount]) -> int:
    return sum(count.letters for count in counted)


def _without_data(letter: DeadLetter) -> dict[str, object]:
    return {name: value for name, value in asdict(letter).items() if name != "data"}


def _masked(letter: DeadLetter) -> DeadLetter:
    return replace(
        letter,
        data=masked_data(letter.data),
        attributes=masked(dict(letter.attributes)),
        exception=masked_words(letter.exception),
    )


def _error(error_class: str, exception: str) -> str:
    return f"{error_class}: {exception}" if error_class else exception
