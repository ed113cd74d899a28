"""`clientmgr erasure …`: erase what is deleted from the log and the tables beside it, and see when that was done."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from clientmgr.base.database import Role
from clientmgr.cli.output import JsonOption, console, open_database, print_json, progress_bar, show_rows
from clientmgr.erasure.sweep import Report, latest, sweep

app = typer.Typer(help="Erasure: sweep what is deleted out of every place, and see when.", no_args_is_help=True)


@app.command("sweep")
def sweep_command(as_json: JsonOption = False) -> None:
    """Erase deleted contacts, devices and accounts from all messages and tables. The gateway does it regularly."""
    database, settings = open_database()
    with progress_bar("looking at messages", None) as progress:

        def on_progress(place: str, report: Report) -> None:
            progress.update(progress.task_ids[0], description=place, completed=sum(report.looked_at.values()))

        report = sweep(database, settings, on_progress=on_progress)
    if as_json:
        print_json(asdict(report))
        return
    places = sorted({*report.looked_at, *report.erased, *report.rewritten})
    rows: list[dict[str, Any]] = [
        {
            "place": place,
            "looked_at": report.looked_at.get(place, 0),
            "erased": report.erased.get(place, 0),
            "rewritten": report.rewritten.get(place, 0),
        }
        for place in places
    ]
    show_rows(rows, ["place", "looked_at", "erased", "rewritten"], as_json=False, empty="nothing to look at")
    if report.hashes_expired:
        console.print(f"{report.hashes_expired} hashes had served their time")


@app.command("list")
def list_command(
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 10, as_json: JsonOption = False
) -> None:
    """List the newest sweeps. What was deleted before a finished one began is erased."""
    database, _ = open_database()
    with database.connect(Role.READER) as connection:
        rows = latest(connection, limit)
    if not as_json:
        rows = [{**row, "erased": sum(row["counts"].get("erased", {}).values())} for row in rows]
    columns = ["started_at", "finished_at", "erased", "error"]
    show_rows(rows, columns, as_json=as_json, empty="nobody has swept yet")
