"""How commands speak: tables and progress for people, JSON for programs, one form for errors."""

import getpass
import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clientmgr.base.data_folder import attach
from clientmgr.base.database import Database
from clientmgr.base.errors import InvalidInputError
from clientmgr.base.logs import configure_logging, get_logger
from clientmgr.base.settings import Settings, load_settings

if TYPE_CHECKING:
    from rich.progress import Progress

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
RevealOption = Annotated[
    bool,
    typer.Option("--reveal", help="Show push tokens and web push keys in full. This is recorded in the audit log."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

# A file or a pipe has no width: a table in it is as wide as its contents.
UNLIMITED_WIDTH = 10_000
COLUMN_GAP = 2
NARROWEST_WRAPPED = 14

log = get_logger(__name__)
console = Console(width=None if sys.stdout.isatty() else UNLIMITED_WIDTH)
errors = Console(stderr=True)
_failures_are_logged = False


def log_failures() -> None:
    """From here on a failure is a record in the log: of a service, a machine reads every line of standard error."""
    global _failures_are_logged  # noqa: PLW0603  # how this process speaks, decided once
    _failures_are_logged = True


def fail(message: str, code: int) -> NoReturn:
    """Say what is wrong, on standard error, and end with `code`."""
    if _failures_are_logged:
        log.error(message)
        sys.exit(code)
    errors.print(f"error: {message}", style="bold red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)


def open_database(*, as_owner: bool = False, with_key: bool = True) -> tuple[Database, Settings]:
    """The database that the settings name, or that an embedded stack in this folder runs."""
    settings = attach(load_settings(), as_owner=as_owner, with_key=with_key)
    configure_logging(settings)
    return Database.from_settings(settings), settings


def actor() -> str:
    """Who the audit log says did it."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return "cli:unknown"


def show_rows(
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    as_json: bool,
    empty: str,
    wrapped: Collection[str] | None = None,
) -> None:
    """Rows as a table, or as a JSON array of objects. Only `wrapped` columns (the last one) go over several lines.

    Where that does not fit a narrow terminal, rows are shown one below the other: nothing is ever cut off.
    """
    if as_json:
        print_json(list(rows))
        return
    records = [[_cell(row[column]) for column in columns] for row in rows]
    if not records:
        console.print(empty)
        return
    wrapped = columns[-1:] if wrapped is None else wrapped
    table = Table(box=None, pad_edge=False, header_style="bold")
    needed = 0
    for index, column in enumerate(columns):
        table.add_column(_title(column), overflow="fold", no_wrap=column not in wrapped)
        widest = max(len(_title(column)), *(record[index].cell_len for record in records))
        needed += COLUMN_GAP + (min(widest, NARROWEST_WRAPPED) if column in wrapped else widest)
    for record in records:
        table.add_row(*record)
    if needed - COLUMN_GAP <= console.width:
        console.print(table)
        return
    for number, row in enumerate(records):
        if number:
            console.print()
        show_record(dict(zip(columns, row, strict=True)))


def show_record(record: Mapping[str, Any]) -> None:
    """One thing with all its properties, one a line."""
    for name, value in record.items():
        text = value if isinstance(value, Text) else _cell(value)
        console.print(Text.assemble((f"{_title(name)}: ", "bold"), text), overflow="fold")


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=_to_json) + "\n")


@contextmanager
def progress_bar(description: str, total: int | None) -> "Iterator[Progress]":
    """A bar on standard error, where that is a terminal; `progress.advance(progress.task_ids[0])` moves it."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        progress.add_task(description, total=total)
        yield progress


def check_output(path: Path, option: str = "--output") -> None:
    """Refuse a file that can't be written, before the work that it is for."""
    folder = path.parent
    if path.is_dir():
        raise InvalidInputError(option, "a file and no folder", path)
    if not folder.is_dir():
        raise InvalidInputError(option, "a file in a folder that is there", path)
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise InvalidInputError(option, "a file that you may write", path)


def _title(name: str) -> str:
    return name.replace("_", " ")


def _cell(value: Any) -> Text:
    """What comes from a store is shown as it is: never as markup, never as a terminal's control sequence."""
    if value is None:
        text = "–"
    elif isinstance(value, datetime):
        text = value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    elif isinstance(value, dict):
        text = ", ".join(f"{key}={_plain(item)}" for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        text = ", ".join(map(_plain, value))
    else:
        text = _plain(value)
    return Text("".join(character if character.isprintable() else repr(character)[1:-1] for character in text))


def _plain(value: Any) -> str:
    """As JSON writes it, where Python would write something of its own."""
    if value is None or isinstance(value, (bool, dict, list, tuple)):
        return json.dumps(value, ensure_ascii=False, default=_to_json)
    return str(value)


def _to_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def unreadable(field: str, file: Path, error: OSError | UnicodeDecodeError) -> InvalidInputError:
    """What to raise for a file that can't be read as text: the whole path, and why."""
    why = error.strerror or "" if isinstance(error, OSError) else str(error)
    return InvalidInputError(field, f"a text file that can be read ({why})", file)
