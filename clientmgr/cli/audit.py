"""`clientmgr audit …`: read the audit log, prove that nobody changed it, and copy its ends to where nobody can."""

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import psycopg
import typer
from msgspec import structs

from clientmgr.audit.anchoring import anchor_log
from clientmgr.audit.log import PLATFORM, AuditLogger, read_log
from clientmgr.audit.places.configured import anchor_places
from clientmgr.audit.verification import Examined, Verdict, verify_log
from clientmgr.base.customer_ids import parse_customer_id
from clientmgr.base.database import Role
from clientmgr.base.errors import ClientManagerError
from clientmgr.base.logs import get_logger
from clientmgr.base.wording import plural
from clientmgr.cli import check_proof
from clientmgr.cli.output import JsonOption, actor, console, open_database, print_json, show_rows
from clientmgr.cli.tenants import NEGATIVE_NUMBERS_ARE_ARGUMENTS

app = typer.Typer(help="The audit log: list, verify and anchor.", no_args_is_help=True)
log = get_logger(__name__)

NOT_PROVEN = 3
"""Exit code of a verification that found nothing wrong and could not ask every place: a server is not there."""

CustomerOption = Annotated[
    str | None, typer.Option("--customer", "-c", help="Only this customer's rows; 0 is the platform itself.")
]


@app.command("list")
def list_command(
    customer: CustomerOption = None,
    action: Annotated[str | None, typer.Option(help="Only this action, for example account.delete.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many rows.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List the newest rows of the audit log."""
    customer_id = _chain(customer)
    database, _ = open_database()
    with database.connect(Role.READER) as connection:
        rows = [
            {name: value for name, value in structs.asdict(record).items() if name not in {"previous_hash", "key_id"}}
            for record in read_log(connection, customer_id=customer_id, action=action, limit=limit)
        ]
    if not as_json:
        rows = [{**row, "event": _in_words(row)} for row in rows]
    columns = ["recorded_at", "customer_id", "seq", "actor", "event"]
    show_rows(rows, columns, as_json=as_json, empty="nothing recorded yet")


@app.command(context_settings=NEGATIVE_NUMBERS_ARE_ARGUMENTS)
def verify(customer: CustomerOption = None, as_json: JsonOption = False) -> None:
    """Check every chain of the audit log, what guards it, and that it continues the last anchors.

    Exit code 1 and a line for each thing that is not as it was written; 3 if nothing is wrong but a place for anchors
    does not answer. A whole log that is intact is anchored.
    """
    customer_id = _chain(customer)
    database, settings = open_database()
    logger, places = AuditLogger.from_settings(settings), anchor_places(settings)
    verdict = verify_log(database, logger, places, customer_id, kept=sys.maxsize)
    if verdict.state == "intact" and customer_id is None:
        try:
            anchor_log(database, logger, places, actor=actor())
        except (psycopg.Error, ClientManagerError) as error:
            # Whoever may only read can verify all the same.
            log.warning("the log was verified and could not be anchored", error=str(error).strip())
    if as_json:
        print_json(_as_json(verdict))
    else:
        _show(verdict)
    if verdict.findings:
        raise typer.Exit(1 if verdict.state == "damaged" else NOT_PROVEN)


@app.command()
def anchor(
    accept: Annotated[
        str | None,
        typer.Option(
            metavar="REASON",
            help="Take the log as it is, though it does not continue the anchors: after restoring a backup, for "
            "example. The reason is recorded in the audit log.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the ends of all chains, signed, to AUDIT_ANCHORS. Refused if the log does not continue what is there."""
    database, settings = open_database()
    places = anchor_places(settings)
    written = anchor_log(database, AuditLogger.from_settings(settings), places, actor=actor(), accept=accept)
    show_rows([asdict(result) for result in written], ["place", "number", "outcome"], as_json=as_json, empty="")
    if not all(result.is_kept for result in written):
        raise typer.Exit(NOT_PROVEN)


def _as_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "intact": verdict.state == "intact",
        "state": verdict.state,
        **asdict(verdict.examined),
        "findings": [asdict(finding) for finding in verdict.first],
    }


def _show(verdict: Verdict) -> None:
    looked_at = _looked_at(verdict.examined)
    if verdict.state == "intact":
        console.print(f"the audit log is intact: {looked_at}", soft_wrap=True)
        return
    findings = [asdict(finding) for finding in verdict.first]
    show_rows(findings, ["customer_id", "seq", "problem"], as_json=False, empty="")
    if verdict.state == "damaged":
        console.print(
            f"the audit log is not as it was written: {plural(verdict.findings, 'finding')}, {looked_at}",
            soft_wrap=True,
        )
    else:
        console.print(f"nothing is wrong with what could be checked, but that is no proof: {looked_at}", soft_wrap=True)


def _looked_at(examined: Examined) -> str:
    """How much was checked, in words."""
    with_anchors = f"compared with {plural(examined.anchors, 'anchor')}"
    if examined.anchored_at is not None:
        with_anchors += f", the newest of {examined.anchored_at.astimezone():%Y-%m-%d %H:%M:%S}"
    if examined.not_readable:
        with_anchors += f", and not with {', '.join(examined.not_readable)}, which can only be written"
    return f"{plural(examined.rows, 'row')} in {plural(examined.chains, 'chain')}, {with_anchors}"


def _in_words(row: Mapping[str, Any]) -> str:
    """What happened, in one cell: a terminal of 80 columns has no room for a column each."""
    facts = {
        "rows": row["rows_affected"],
        "contact": row["contact_hash"],
        **row["details"],
    }
    shown = [f"{name}={value}" for name, value in facts.items() if value is not None]
    return ", ".join([f"{row['action']}: {row['outcome']}", *shown])


def _chain(customer: str | None) -> int | None:
    if customer is None:
        return None
    return PLATFORM if customer == "0" else parse_customer_id(customer, field="--customer")


check_proof.register(app)
