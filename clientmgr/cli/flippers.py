"""`clientmgr flippers …`: switches that running daemons obey within seconds. Each change is in the audit log."""

from typing import Annotated, Literal

import typer
from msgspec.structs import asdict

from clientmgr.audit.log import AuditLogger
from clientmgr.base.customer_ids import CustomerId, parse_customer_id
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.cli.output import JsonOption, YesOption, actor, console, errors, open_database, show_rows
from clientmgr.operations.flipper_effects import effect_for_all
from clientmgr.orphans.policy import OrphanPolicy
from clientmgr.tenants.flippers import Flipper, list_settings, set_flipper, unset_flipper

app = typer.Typer(
    help="Switches for running daemons: list, set, unset. A customer with both flippers on is read from PostgreSQL "
    "alone; others may still be read from the legacy store (DynamoDB), and their orphans are never deleted.",
    no_args_is_help=True,
)

NameArgument = Annotated[Flipper, typer.Argument(show_default=False)]
CustomerOption = Annotated[
    str | None, typer.Option("--customer", "-c", help="For this customer alone. Default: for all.", show_default=False)
]


@app.command("list")
def list_command(customer: CustomerOption = None, as_json: JsonOption = False) -> None:
    """List what is set: for all, and for single customers. A customer's own setting counts; unset means off."""
    customer_id = _customer_id(customer)
    database, _ = open_database()
    with database.connect(Role.READER) as connection:
        rows = [asdict(setting) for setting in list_settings(connection, customer_id)]
    if not as_json:
        rows = [
            {**row, "customer": row["customer_id"] or "all", "state": "on" if row["enabled"] else "off"} for row in rows
        ]
    columns = ["name", "customer", "state", "updated_at", "updated_by"]
    show_rows(rows, columns, as_json=as_json, empty="nothing is set: all flippers are off")


@app.command("set")
def set_command(
    name: NameArgument,
    state: Annotated[Literal["on", "off"], typer.Argument(show_default=False)],
    customer: CustomerOption = None,
    yes: YesOption = False,
) -> None:
    """Turn a flipper on or off. Running daemons follow within FLIPPER_REFRESH_MS.

    For all customers it asks first, and says what it will change.
    """
    customer_id = _customer_id(customer)
    database, settings = open_database()
    if customer_id is None and not yes:
        _ask(database, settings, name, enabled=state == "on", question=f"Turn {name} {state} for all customers?")
    with database.connect(Role.WRITER) as connection:
        audit = AuditLogger.from_settings(settings)
        changed = set_flipper(connection, audit, name, customer_id, enabled=state == "on", actor=actor())
    _tell(name, customer_id, f"is now {state}" if changed else f"was {state} already")


@app.command("unset")
def unset_command(name: NameArgument, customer: CustomerOption = None, yes: YesOption = False) -> None:
    """Forget a setting: a customer then follows the global one, and without that a flipper is off.

    The global one's end is asked about first.
    """
    customer_id = _customer_id(customer)
    database, settings = open_database()
    if customer_id is None and not yes:
        _ask(database, settings, name, enabled=None, question=f"Unset {name} for all customers?")
    with database.connect(Role.WRITER) as connection:
        removed = unset_flipper(connection, AuditLogger.from_settings(settings), name, customer_id, actor=actor())
    _tell(name, customer_id, "is no longer set" if removed else "was not set")


def _ask(database: Database, settings: Settings, name: Flipper, *, enabled: bool | None, question: str) -> None:
    """What a change for all customers would do, and whether it is wanted."""
    with database.connect(Role.READER) as connection:
        effect = effect_for_all(connection, name, enabled, OrphanPolicy.from_settings(settings))
    for told in effect.in_words:
        errors.print(told, highlight=False, soft_wrap=True)
    typer.confirm(question, abort=True, err=True)


def _customer_id(customer: str | None) -> CustomerId | None:
    return None if customer is None else parse_customer_id(customer, field="--customer")


def _tell(name: Flipper, customer_id: CustomerId | None, what: str) -> None:
    whom = "all customers" if customer_id is None else f"customer {customer_id}"
    console.print(f"{name} {what} for {whom}", highlight=False)
