"""`clientmgr devices import`: devices from a file into the tenants' tables, by the same rules as events."""

import asyncio
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from clientmgr.base.customer_ids import parse_customer_id
from clientmgr.base.errors import InvalidInputError
from clientmgr.cli.output import JsonOption, actor, console, errors, open_database, print_json, progress_bar


def register(app: typer.Typer) -> None:
    app.command("import")(import_command)


def import_command(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, show_default=False)],
    *,
    customer: Annotated[
        str | None,
        typer.Option("--customer", "-c", help="Whose devices. Default: each row's customerId.", show_default=False),
    ] = None,
    application: Annotated[
        str | None, typer.Option(help="Of which application, where no column says so.", show_default=False)
    ] = None,
    form: Annotated[
        Literal["csv", "ndjson", "parquet"] | None,
        typer.Option("--format", help="The form of the file. Default: as its name ends.", show_default=False),
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="COLUMN=FIELD",
            help="Which field a column is: --map locale=language, --map tier=attributes.tier; --map notes= leaves it "
            "out. Columns called like a field need none.",
            show_default=False,
        ),
    ] = None,
    delimiter: Annotated[str, typer.Option(help="What separates the cells of a CSV file.")] = ",",
    occurred_at: Annotated[
        str | None,
        typer.Option(
            help="The time (ISO 8601, or epoch ms) of rows without occurredAt or lastSeenAt. Default: the file's.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check every row and report; write nothing.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin anew, where an earlier import of the file was interrupted.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Import devices from a file: CSV with a header, JSON lines, or Parquet.

    A row counts as what it says of its device at its own time (occurredAt, else lastSeenAt): older than what is known
    it changes nothing, and live events may come in between. An empty cell says nothing. Rows that can't be imported are
    written to FILE.rejected.csv or FILE.rejected.ndjson, with line and reason, and the exit code is 1. An import that
    was interrupted goes on where it was (FILE.import knows).
    """
    from clientmgr.devices.imports.folder_import import audit_import
    from clientmgr.devices.imports.importer import DeviceImport, ImportOptions

    if len(delimiter) != 1:
        raise InvalidInputError("--delimiter", "one character", delimiter)
    options = ImportOptions(
        file,
        form,
        None if customer is None else parse_customer_id(customer, field="--customer"),
        application,
        _mapping(mapping or []),
        delimiter,
        None if occurred_at is None else _time(occurred_at),
        dry_run,
        restart,
    )
    database, settings = open_database()
    work = DeviceImport(settings, options)
    with progress_bar("checking" if dry_run else "importing", None) as progress:
        report = asyncio.run(work.run(database, lambda rows: progress.advance(progress.task_ids[0], rows)))
    totals = report.totals
    if not dry_run:
        audit_import(database, settings, work, report, actor=actor())
    rejected = None if report.rejected is None else str(report.rejected)
    if as_json:
        facts: dict[str, Any] = {"dryRun": dry_run, "continuedAfter": report.continued_after, "rejectedFile": rejected}
        print_json({"rows": totals.rows, "imported": totals.imported, "rejected": totals.rejected,
                    "reasons": totals.reasons, **facts})  # fmt: skip
    else:
        _tell(totals.rows, totals.imported, totals.reasons, dry_run=dry_run)
    if report.continued_after:
        errors.print(f"went on after {report.continued_after} rows of an earlier attempt", highlight=False)
    if rejected:
        errors.print(f"rejected rows are in {rejected}", highlight=False, markup=False, soft_wrap=True)
    if totals.rejected:
        raise typer.Exit(1)


def _tell(rows: int, imported: int, reasons: dict[str, int], *, dry_run: bool) -> None:
    done = "can be imported; nothing was written" if dry_run else "imported"
    console.print(f"{imported} of {rows} rows {done}", highlight=False)
    for name, count in sorted(reasons.items(), key=lambda one: (-one[1], one[0])):
        console.print(f"  {count} rejected because of {name}", highlight=False, markup=False)


def _mapping(pairs: list[str]) -> dict[str, str]:
    mapped: dict[str, str] = {}
    for pair in pairs:
        column, equals, name = pair.rpartition("=")
        if not equals or not column or column in mapped:
            raise InvalidInputError("--map", "COLUMN=FIELD, each column once", pair)
        mapped[column] = name.strip()
    return mapped


def _time(text: str) -> int:
    from clientmgr.devices.imports.rows import RowError, moment_of

    try:
        moment = moment_of("--occurred-at", text)
    except RowError:
        raise InvalidInputError("--occurred-at", "epoch milliseconds or a time in ISO 8601", text) from None
    if moment > time.time_ns() // 1_000_000:
        raise InvalidInputError("--occurred-at", "a time of the past", text)
    return moment
