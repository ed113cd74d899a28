"""`clientmgr intake-keys …`: keys of the HTTP intake. Each change is in the audit log."""

import sys
from datetime import timedelta
from typing import Annotated

import typer
from msgspec.structs import asdict

from clientmgr.audit.log import AuditLogger
from clientmgr.base.customer_ids import parse_customer_id
from clientmgr.base.database import Role
from clientmgr.cli.output import JsonOption, actor, console, errors, open_database, print_json, show_rows
from clientmgr.contracts.intake_keys import KeyKind
from clientmgr.tenants.intake_keys import NewKey, create_key, list_keys, revoke_key, rotate_key

app = typer.Typer(
    help="Keys of the HTTP intake, each for one application of a customer: create, list, rotate, revoke. "
    "A running intake follows within seconds.",
    no_args_is_help=True,
)

KeyArgument = Annotated[str, typer.Argument(metavar="KEY_ID", help="As `list` shows it.", show_default=False)]
DaysOption = Annotated[int, typer.Option(min=0, help="Days until the key expires. 0: never.")]


@app.command("create")
def create_command(
    customer: Annotated[str, typer.Argument(metavar="CUSTOMER", help="The customer's id.", show_default=False)],
    application: Annotated[
        str, typer.Argument(metavar="APPLICATION", help="The application's code.", show_default=False)
    ],
    *,
    name: Annotated[str, typer.Option(help="What it is for. Two live keys of a name at most.")] = "default",
    kind: Annotated[
        KeyKind, typer.Option(help="server: a back end sends the key. app: an app or a web page signs with it.")
    ] = KeyKind.SERVER,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN", help="A web page that may use it: https://shop.example.com. Repeat it for more."
        ),
    ] = None,
    days: DaysOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Make a key. It is printed once, on standard output, and kept nowhere.

    clientmgr intake-keys create 1001 EMS11-C3FD3 --name backend
    """
    customer_id = parse_customer_id(customer, field="CUSTOMER")
    database, settings = open_database()
    with database.connect(Role.WRITER) as connection:
        made = create_key(
            connection,
            AuditLogger.from_settings(settings),
            settings,
            customer_id,
            application,
            name=name,
            kind=kind,
            origins=origin or [],
            lifetime=_lifetime(days),
            actor=actor(),
        )
    _show(made, as_json=as_json)


@app.command("list")
def list_command(
    customer: Annotated[
        str | None, typer.Option("--customer", "-c", help="Of this customer alone.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the keys, without their secrets."""
    customer_id = None if customer is None else parse_customer_id(customer, field="--customer")
    database, _ = open_database(with_key=False)
    with database.connect(Role.READER) as connection:
        rows = [asdict(key) for key in list_keys(connection, customer_id)]
    if not as_json:
        rows = [{**row, "origins": ", ".join(row["origins"])} for row in rows]
    columns = [
        "key_id",
        "customer_id",
        "application_code",
        "name",
        "kind",
        "state",
        "created_at",
        "expires_at",
        "origins",
    ]
    show_rows(rows, columns, as_json=as_json, empty="there are no keys: make one with `clientmgr intake-keys create`")


@app.command("rotate")
def rotate_command(
    key_id: KeyArgument,
    *,
    grace_hours: Annotated[float, typer.Option(min=0, help="How long the old key goes on to count.")] = 168.0,
    days: DaysOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Make a key like KEY_ID, which itself expires after a while: until then both count."""
    database, settings = open_database()
    with database.connect(Role.WRITER) as connection:
        made = rotate_key(
            connection,
            AuditLogger.from_settings(settings),
            settings,
            key_id,
            grace=timedelta(hours=grace_hours),
            lifetime=_lifetime(days),
            actor=actor(),
        )
    _show(made, as_json=as_json)


@app.command("revoke")
def revoke_command(key_id: KeyArgument) -> None:
    """Revoke a key for good. A running intake refuses it within seconds."""
    database, settings = open_database()
    with database.connect(Role.WRITER) as connection:
        revoked = revoke_key(connection, AuditLogger.from_settings(settings), key_id, actor=actor())
    console.print(f"key {key_id} {'is revoked' if revoked else 'was revoked already'}", highlight=False)


def _lifetime(days: int) -> timedelta | None:
    return timedelta(days=days) if days else None


def _show(made: NewKey, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(made))
        return
    sys.stdout.write(f"{made.key}\n")
    errors.print(f"key {made.key_id}: keep it safe, it is not shown again", highlight=False)
