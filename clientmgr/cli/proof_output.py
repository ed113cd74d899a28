"""How the commands that prove and export show what they found, where it goes, and how they are stopped."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clientmgr.base.errors import InvalidInputError
from clientmgr.base.private_files import write_private
from clientmgr.cli.output import check_output, console, errors, open_database, show_record, show_rows

# Slow to import, and the commands beside those that prove need none of it.
if TYPE_CHECKING:
    from clientmgr.erasure.places import Stores, Watch
    from clientmgr.erasure.report import Report
    from clientmgr.erasure.stored_rows import Tick

OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="A file, readable by you alone; - is standard output.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")]
SearchOption = Annotated[
    list[str] | None,
    typer.Option("--search", metavar="TEXT", help="Look for this text too, an e-mail for example; repeat it for more."),
]


def open_stores() -> "Stores":
    from clientmgr.erasure.places import Stores
    from clientmgr.operations.dagster_addresses import dagster_database_url

    database, settings = open_database()
    return Stores(database, settings, dagster_database_url(settings))


def hand_out(report: "Report", file: Path | None, *, as_json: bool) -> None:
    """Show the report, write it where it is wanted, and end with its exit code."""
    from clientmgr.erasure.report import as_text

    if file is not None:
        write_private(file, as_text(report))
    if as_json:
        sys.stdout.write(as_text(report))
    else:
        show_report(report)
        if file is not None:
            console.print(f"signed report: {file}", markup=False, highlight=False)
    if not report.is_clean:
        raise typer.Exit(1)


def show_report(report: "Report") -> None:
    whom = f"customer {report.customer_id}"
    if report.contact_id is not None:
        whom = f"contact {report.contact_id} of {whom}"
    rows = [
        {
            "place": place.place,
            "looked_at": f"{place.looked_at} {place.unit}" if place.state in {"looked at", "not ours"} else place.state,
            "found": place.found if place.state in {"looked at", "not ours"} else None,
            "hashes": place.hashes or None,
            "kept": place.kept or None,
            "note": "; ".join(filter(None, [", ".join(place.where), place.note])) or None,
        }
        for place in report.places
    ]
    columns = ["place", "looked_at", "found", "hashes", "note"]
    if report.contact_id is None:
        columns.insert(4, "kept")
    show_rows(rows, columns, as_json=False, empty="")
    console.print()
    audit = [
        {
            "audit_row": row.seq,
            "recorded_at": row.recorded_at,
            "actor": row.actor,
            "event": f"{row.action}: {row.outcome}",
        }
        for row in report.audit_rows
    ]
    show_rows(audit, ["audit_row", "recorded_at", "actor", "event"], as_json=False, empty="no audit rows about it")
    console.print()
    facts = {
        "about": whom,
        "made_at": report.made_at,
        "release": report.release,
        "deletions": "; ".join(
            f"{one.deleted_at:%Y-%m-%d %H:%M:%S} UTC, carried out {one.recorded_at:%Y-%m-%d %H:%M:%S} UTC"
            for one in report.deletions
        )
        or None,
        "audit_chain": "intact" if report.audit_chain.is_intact else "; ".join(report.audit_chain.findings),
        "signature": f"{report.signature} (key {report.key_id})",
        "notes": " ".join(report.notes) or None,
        "verdict": report.verdict,
    }
    show_record(facts)


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let SIGTERM end the work as Ctrl-C does: what is half written goes, and the connection is closed.

    SIGINT too where a shell that put us into the background had it ignored.
    """
    before = {one: signal.signal(one, signal.default_int_handler) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def watched() -> "Watch":
    """Says on standard error, where that is a terminal, which place is looked at and how far the look has come."""

    def watch(place: str) -> "Tick":
        seen = 0
        if not errors.is_terminal:
            return lambda _: None
        errors.print(f"looking at {place} …", highlight=False, markup=False)

        def tick(rows: int) -> None:
            nonlocal seen
            before, seen = seen, seen + rows
            if before // 100_000 != seen // 100_000:
                errors.print(f"  {seen} so far", highlight=False)

        return tick

    return watch


def chosen_texts(search: list[str] | None) -> list[str]:
    if any(not text.strip() for text in search or ()):
        raise InvalidInputError("--search", "a text", "")
    return search or []


def chosen_file(output: Path | None, *, force: bool) -> Path | None:
    if output is None or str(output) == "-":
        return None
    check_output(output)
    if output.exists() and not force:
        raise InvalidInputError("--output", "a file that is not there yet (or --force)", output)
    return output
