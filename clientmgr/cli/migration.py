"""`clientmgr migration …`: customers on their way from DynamoDB, the legacy store, to PostgreSQL."""

from typing import Annotated

import typer
from msgspec.structs import asdict

from clientmgr.audit.log import AuditLogger
from clientmgr.base.customer_ids import CustomerId, parse_customer_id
from clientmgr.base.database import Role
from clientmgr.cli.output import (
    JsonOption,
    YesOption,
    actor,
    console,
    open_database,
    print_json,
    show_record,
    show_rows,
)
from clientmgr.legacy_migration import moving
from clientmgr.legacy_migration.stages import FLIPPERS, Stage

app = typer.Typer(
    help="Customers on their way from DynamoDB to PostgreSQL: status, start, advance, back. "
    "The stages: legacy, importing, in sync, postgres with fallback, postgres only.",
    no_args_is_help=True,
)

CustomerArgument = Annotated[str, typer.Argument(metavar="CUSTOMER_ID", show_default=False)]


@app.command()
def status(
    customer: Annotated[str | None, typer.Argument(metavar="[CUSTOMER_ID]", show_default=False)] = None,
    as_json: JsonOption = False,
) -> None:
    """How far all active customers are; or one in detail, with what was rejected and which fields differ."""
    customers = None if customer is None else [parse_customer_id(customer)]
    database, settings = open_database()
    with database.connect(Role.READER) as connection:
        found = list(moving.status_of(connection, settings, customers))
    if customer is not None:
        if not found:
            console.print(f"customer {customer} is not active: only active customers are migrated")
            raise typer.Exit(1)
        _show(found[0], as_json=as_json)
        return
    columns = ["customer_id", "stage", "items", "imported", "rejected", "different", "checked_at", "why_not_further"]
    rows = [asdict(one) for one in found]
    show_rows(rows, columns, as_json=as_json, empty="there are no active customers")


@app.command()
def start(customers: Annotated[list[str], typer.Argument(metavar="CUSTOMER_ID...", show_default=False)]) -> None:
    """Begin to import customers' devices, or begin anew. Dagster does it; where the mapper reads stays as it is."""
    wanted = [parse_customer_id(customer) for customer in customers]
    database, settings = open_database()
    audit = AuditLogger.from_settings(settings)
    for customer_id in wanted:
        with database.connect(Role.WRITER) as connection:
            _tell(moving.start(connection, audit, settings, customer_id, actor=actor()))


@app.command()
def advance(customer: CustomerArgument, yes: YesOption = False) -> None:
    """Go on to the next stage, if the last comparison allows it. Asks before the mapper's source changes."""
    customer_id = parse_customer_id(customer)
    database, settings = open_database()
    with database.connect(Role.READER) as connection:
        found = next(iter(moving.status_of(connection, settings, [customer_id])), None)
    if found is not None and found.next_stage is not None and found.why_not_further is None:
        _confirm(customer_id, found.stage, found.next_stage, yes=yes)
    with database.connect(Role.WRITER) as connection:
        audit = AuditLogger.from_settings(settings)
        _tell(moving.advance(connection, audit, settings, customer_id, actor=actor()))


@app.command()
def back(
    customer: CustomerArgument,
    to: Annotated[
        Stage | None, typer.Option(help="An earlier stage. Default: the one before this.", show_default=False)
    ] = None,
    yes: YesOption = False,
) -> None:
    """Go back, at any time. New events are in PostgreSQL alone: a mapper that reads DynamoDB misses them."""
    customer_id = parse_customer_id(customer)
    database, settings = open_database()
    if not yes:
        typer.confirm(f"Take customer {customer_id} back to {to or 'the stage before'}?", abort=True, err=True)
    with database.connect(Role.WRITER) as connection:
        audit = AuditLogger.from_settings(settings)
        _tell(moving.back(connection, audit, settings, customer_id, actor=actor(), to=to))


def _confirm(customer_id: CustomerId, stage: Stage, after: Stage, *, yes: bool) -> None:
    if not yes and FLIPPERS[stage] != FLIPPERS[after]:
        source = "PostgreSQL alone" if after is Stage.POSTGRES_ONLY else "PostgreSQL, then DynamoDB"
        typer.confirm(f"The mapper will read customer {customer_id} from {source}. Go on?", abort=True, err=True)


def _tell(now: moving.MigrationStatus) -> None:
    console.print(f"customer {now.customer_id} is at “{now.stage}”", highlight=False)


def _show(found: moving.MigrationStatus, *, as_json: bool) -> None:
    details = asdict(found)
    if as_json:
        print_json(details)
        return
    for name in ("rejections", "different_fields"):
        details[name] = "; ".join(f"{what}: {count}" for what, count in details[name].items()) or "none"
    show_record(details)
