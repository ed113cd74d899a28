"""`clientmgr failures …`: messages that failed, wherever they lie. All commands take the same filters, see
`failure_filters`.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from msgspec import structs
from psycopg import Connection

from clientmgr.audit.log import AuditLogger
from clientmgr.base.database import Role
from clientmgr.base.errors import ClientManagerError, InvalidInputError
from clientmgr.base.masking import masked, masked_data, masked_words
from clientmgr.base.settings import load_settings
from clientmgr.cli.failure_filters import with_filters
from clientmgr.cli.message_output import data_fields, pretty
from clientmgr.cli.output import (
    JsonOption,
    RevealOption,
    YesOption,
    actor,
    console,
    errors,
    open_database,
    print_json,
    progress_bar,
    show_record,
    show_rows,
)
from clientmgr.operations.failures import acting, editing, finding
from clientmgr.operations.failures.finding import FailedMessage, FailureGroup, Filter, Ref, State, as_seen
from clientmgr.operations.failures.outcomes import ReplayOutcome, outcomes

MOST_GROUPS = 1000
Done = TypeVar("Done")

app = typer.Typer(help="Messages that failed, wherever they lie: list, show, edit, replay, drop.", no_args_is_help=True)

AllOption = Annotated[bool, typer.Option("--all", help="Really all; needed where no filter is given.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", "-n", help="Only tell what would be done.")]
TargetOption = Annotated[
    str | None,
    typer.Option("--to", help="Where messages of `sending-mg-errors` came from, if there are several mappers' topics."),
]


@app.command("list")
@with_filters
def list_command(
    wanted: Filter,
    *,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest first.")] = 50,
    count: Annotated[bool, typer.Option("--count", help="Only how many, by error, tenant and topic.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List failed messages: those that nobody has dealt with yet, or what the filters choose."""
    database, _ = open_database()
    with database.connect(Role.READER, autocommit=True) as connection:
        if count:
            _show_groups(finding.groups(connection, wanted, limit=MOST_GROUPS), as_json=as_json)
            return
        found = finding.find(connection, wanted, limit=limit)
        last = {one.ref: one for one in outcomes(connection, [one.ref for one in found], last_only=True)}
    rows: list[dict[str, Any]] = [
        {
            **structs.asdict(one),
            "id": one.ref,
            "error": masked_words(one.error),
            "replay": last[one.ref].outcome if one.ref in last else None,
        }
        for one in found
    ]
    for row in rows:
        del row["ref"]
    if not as_json:
        rows = [{**row, "error": _error(row["error_class"], row["error"])} for row in rows]
    columns = ["id", "failed_at", "place", "topic", "tenant", "key", "attempts", "state", "replay", "error"]
    show_rows(rows, columns, as_json=as_json, empty="no failed messages")


@app.command()
def show(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="As `list` shows them: d17, e5-123.")],
    *,
    reveal: RevealOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show failed messages with their contents, error, and what became of their replays. Secrets are masked."""
    database, settings = open_database()
    refs = [Ref.parse(one) for one in ids]
    with database.connect(Role.READER, autocommit=True) as connection:
        found = [finding.show(connection, ref) for ref in refs]
        replays = outcomes(connection, [one.failure.ref for one in found])
    if reveal:
        entries = [acting.revealed(one, actor=actor(), command="failures show") for one in found]
        with database.connect(Role.WRITER) as connection:
            AuditLogger.from_settings(settings).append(connection, entries)
    else:
        found = [_masked(one) for one in found]
        replays = [structs.replace(one, error=masked_words(one.error)) for one in replays]
    of_each = [[replay for replay in replays if replay.ref == one.failure.ref] for one in found]
    if as_json:
        documents = [
            {**_record(one), "replays": [structs.asdict(replay) for replay in its], **data_fields(one.data)}
            for one, its in zip(found, of_each, strict=True)
        ]
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(documents), indent=2).decode() + "\n")
        return
    for one, its in zip(found, of_each, strict=True):
        show_record(_record(one))
        for replay in its:
            console.print(_told(replay), markup=False, highlight=False, soft_wrap=True)
        console.print(pretty(one.data), markup=False, highlight=False, soft_wrap=True)
        console.print()


@app.command()
@with_filters
def replay(
    wanted: Filter,
    *,
    everything: AllOption = False,
    target: TargetOption = None,
    again: Annotated[bool, typer.Option("--again", help="Also dead letters that were replayed before.")] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Deliver failed messages again, unchanged, to where they failed. Safe to repeat."""
    if again and wanted.state is State.OPEN:
        wanted = replace(wanted, state=State.ANY)
    run = partial(acting.replay, settings=load_settings(), target=target, again=again)
    results = _act("replay", run, wanted, everything=everything, dry_run=dry_run, yes=yes, as_json=as_json)
    if results is None:
        return
    rows = [asdict(result) for result in results]
    columns = ["place", "topic", "subscription", "replayed", "skipped", "problem"]
    show_rows(rows, columns, as_json=as_json, empty="nothing was open")
    if not as_json and any(result.replayed for result in results):
        console.print("`clientmgr failures list --state replayed` shows what becomes of them", highlight=False)
    if any(result.problem for result in results):
        raise typer.Exit(1)


@app.command()
def edit(
    failure: Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it: d17, e5-123.")],
    *,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="The edited message; - is standard input. Default: an editor.")
    ] = None,
    target: TargetOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Mend a failed message and replay it, in $EDITOR or from a file. Its topic's contract is checked first.

    Secrets are shown masked; what you leave masked stays as it was. The original is kept and marked as replayed.
    """
    database, settings = open_database()
    ref = Ref.parse(failure)
    with database.connect(Role.READER, autocommit=True) as connection:
        message = finding.show(connection, ref)
        possible = finding.targets(connection, message.failure)
    text = _edited(message, file)
    if text is None:
        console.print("nothing was changed, so nothing was done", highlight=False)
        return
    with _kept_if_refused(ref, None if file else text):
        if dry_run:
            topic = target if target in possible else possible[0] if possible else message.failure.topic
            new = editing.mended(message, text, topic, max_bytes=settings.broker_max_message_bytes)
            changed = ", ".join(new.changed)
            console.print(f"valid for {topic}; would change {changed}; nothing was done", highlight=False)
            return
        audit = AuditLogger.from_settings(settings)
        with database.connect(Role.WRITER, autocommit=True) as connection:
            done = editing.edit_and_replay(
                connection, ref, text, audit, settings=settings, actor=actor(), target=target
            )
    if as_json:
        print_json(asdict(done))
    else:
        console.print(f"{ref} was published to {done.target}, changed: {', '.join(done.changed)}", highlight=False)
        console.print(f"`clientmgr failures show {ref}` tells what becomes of it", highlight=False)


@app.command()
@with_filters
def drop(
    wanted: Filter,
    *,
    everything: AllOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete dead letters for good, and mark messages of error topics as settled. The audit log keeps who did it."""
    dropped = _act("drop", acting.drop, wanted, everything=everything, dry_run=dry_run, yes=yes, as_json=as_json)
    if dropped is None:
        return
    if as_json:
        print_json({"dropped": dropped})
    else:
        console.print(f"{dropped} dropped", highlight=False)


def _act(
    what: str,
    run: Callable[..., Done],
    wanted: Filter,
    *,
    everything: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> Done | None:
    """What came of it; None if nothing was done."""
    if not wanted.is_narrow and not everything:
        # Nobody means everything who forgot the filter.
        raise InvalidInputError("filters", "at least one, or --all", "none")
    database, settings = open_database()
    with database.connect(Role.WRITER, autocommit=True) as connection:
        chosen = _agreed(connection, what, wanted, dry_run=dry_run, yes=yes, as_json=as_json)
        if chosen is None:
            return None
        with progress_bar(what, chosen[1]) as progress:
            return run(
                connection,
                chosen[0],
                AuditLogger.from_settings(settings),
                actor=actor(),
                on_progress=lambda done: progress.advance(progress.task_ids[0], done),
            )


def _agreed(
    connection: Connection[Any], what: str, wanted: Filter, *, dry_run: bool, yes: bool, as_json: bool
) -> tuple[Filter, int] | None:
    """What was confirmed, and how many; None if there is nothing to do. If not, says why."""
    counted = finding.count(connection, wanted)
    found = finding.groups(connection, wanted, limit=MOST_GROUPS)
    if dry_run or not counted.messages:
        _show_groups(found, as_json=as_json)
        if dry_run and not as_json:
            console.print(f"would {what} {counted.messages}; nothing was done", highlight=False)
        return None
    if not yes:
        if not as_json:
            _show_groups(found, as_json=False)
        typer.confirm(f"{what.capitalize()} {counted.messages}?", abort=True, err=True)
    return as_seen(wanted, counted), counted.messages


def _show_groups(found: Sequence[FailureGroup], *, as_json: bool) -> None:
    rows = [{**structs.asdict(group), "example": masked_words(group.example)} for group in found]
    columns = ["messages", "error_class", "tenant", "topic", "place", "first_failed_at", "last_failed_at", "example"]
    show_rows(rows, columns, as_json=as_json, empty="no failed messages")


def _edited(message: FailedMessage, file: Path | None) -> str | None:
    """What the person made of it; None if that is nothing."""
    if file is not None:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise InvalidInputError("--file", f"UTF-8 ({error.reason} at byte {error.start})", str(file)) from None
    before = editing.shown_for_editing(message)
    after = _from_editor(before)
    return None if after.strip() == before.strip() else after


def _from_editor(text: str) -> str:
    """What somebody makes of a text in their own editor. Its secrets are masked, so it may lie in a file meanwhile."""
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.TemporaryDirectory(prefix="clientmgr-") as folder:
        file = Path(folder) / "message.json"
        file.write_text(text + "\n")
        try:
            subprocess.run([*command, str(file)], check=True)  # the person's own editor
        except (OSError, subprocess.CalledProcessError) as error:
            raise InvalidInputError("EDITOR", "an editor that ends well (or give --file)", str(error)) from None
        return file.read_text()


@contextmanager
def _kept_if_refused(ref: Ref, text: str | None) -> Iterator[None]:
    """Nobody writes a text twice: what came from an editor is kept if it is refused. In it, too, secrets are masked."""
    try:
        yield
    except ClientManagerError:
        if text is not None:
            descriptor, kept = tempfile.mkstemp(prefix=f"clientmgr-{ref}-", suffix=".json")
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
            errors.print(f"your text is in {kept}: mend it, and give it with --file", highlight=False, soft_wrap=True)
        raise


def _record(message: FailedMessage) -> dict[str, Any]:
    about = structs.asdict(message.failure)
    del about["ref"]
    shown = {name: value for name, value in asdict(message).items() if name not in {"data", "failure"}}
    return {"id": message.failure.ref, **about, **shown}


def _masked(message: FailedMessage) -> FailedMessage:
    return replace(
        message,
        data=masked_data(message.data),
        attributes=masked(dict(message.attributes)),
        failure=structs.replace(message.failure, error=masked_words(message.failure.error)),
    )


def _told(one: ReplayOutcome) -> str:
    edited = f", edited: {', '.join(one.changed)}" if one.changed else ""
    why = f": {_error(one.error_class, one.error)}" if one.error else ""
    became = f" as {one.died_ref}" if one.died_ref not in (None, one.ref) else ""
    at = one.replayed_at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return f"replayed {at} by {one.replayed_by} to {one.target}{edited}: {one.outcome}{became}{why}"


def _error(error_class: str, error: str) -> str:
    return f"{error_class}: {error}" if error_class and not error.startswith(f"{error_class}:") else error
