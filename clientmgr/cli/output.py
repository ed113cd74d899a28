"""How commands speak: tables and progress for people, JSON for programs, one form for errors."""

import getpass
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from clientmgr.database import Database
from clientmgr.embedded.stack import attach
from clientmgr.logs import configure_logging
from clientmgr.settings import Settings, load_settings

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

console = Console()
errors = Console(stderr=True)


def fail(message: str, code: int) -> NoReturn:
    """Say what is wrong, on standard error, and end with `code`."""
    errors.print(f"error: {message}", style="bold red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)


def open_database() -> tuple[Database, Settings]:
    """The database that the settings name, or that an embedded stack in this folder runs."""
    settings = attach(load_settings())
    configure_logging(settings)
    return Database.from_settings(settings), settings


def actor() -> str:
    """Who the audit log says did it."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return "cli:unknown"


def show_rows(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool, empty: str) -> None:
    """Rows as a table, or as a JSON array of objects."""
    if as_json:
        print_json(list(rows))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row[column]) for column in columns))
    if table.row_count:
        console.print(table)
    else:
        console.print(empty)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=_to_json) + "\n")


@contextmanager
def progress_bar(description: str, total: int | None) -> Iterator[Progress]:
    """A bar on standard error, where that is a terminal; `progress.advance(progress.task_ids[0])` moves it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        progress.add_task(description, total=total)
        yield progress


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    # Rich reads [brackets] as markup: what comes from a store is shown as it is.
    return str(value).replace("[", r"\[")


def _to_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
