"""`clientmgr audit …`: read the audit log and prove that nobody changed it."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from clientmgr.audit.log import PLATFORM, AuditLogger, read_log
from clientmgr.audit.verification import verify as verify_log
from clientmgr.base.customer_ids import parse_customer_id
from clientmgr.base.database import Role
from clientmgr.cli.output import JsonOption, console, open_database, print_json, show_rows
from clientmgr.cli.tenants import NEGATIVE_NUMBERS_ARE_ARGUMENTS

app = typer.Typer(help="The audit log: list and verify.", no_args_is_help=True)

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
            {name: value for name, value in asdict(record).items() if name not in {"previous_hash", "key_id"}}
            for record in read_log(connection, customer_id=customer_id, action=action, limit=limit)
        ]
    if not as_json:
        rows = [{**row, "event": _in_words(row)} for row in rows]
    columns = ["recorded_at", "customer_id", "seq", "actor", "event"]
    show_rows(rows, columns, as_json=as_json, empty="nothing recorded yet")


@app.command(context_settings=NEGATIVE_NUMBERS_ARE_ARGUMENTS)
def verify(customer: CustomerOption = None, as_json: JsonOption = False) -> None:
    """Check every chain of the audit log; exit code 1 and a line for each row that is not as it was written."""
    customer_id = _chain(customer)
    database, settings = open_database()
    with database.connect(Role.READER) as connection:
        findings = [
            asdict(finding) for finding in verify_log(connection, AuditLogger.from_settings(settings), customer_id)
        ]
    if as_json:
        print_json({"intact": not findings, "findings": findings})
    elif findings:
        show_rows(findings, ["customer_id", "seq", "problem"], as_json=False, empty="")
    else:
        console.print("the audit log is intact")
    if findings:
        raise typer.Exit(1)


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
