"""`clientmgr applications …`: what is configured for customers' applications. Each change is in the audit log."""

import enum
from typing import Annotated, Any

import typer
from msgspec.structs import asdict

from clientmgr.audit.log import AuditLogger
from clientmgr.base.customer_ids import parse_customer_id
from clientmgr.base.database import Role
from clientmgr.base.errors import ClientManagerError, InvalidInputError
from clientmgr.cli.output import JsonOption, actor, console, open_database, print_json, show_record, show_rows
from clientmgr.tenants.applications import (
    ApplicationChange,
    find_application,
    list_applications,
    remove_application,
    set_application,
)

app = typer.Typer(
    help="What is configured for an application, where a message or a request does not say it itself: Apple's topic, "
    "the web pages that may send from a browser, the default language.",
    no_args_is_help=True,
)

COLUMNS = [
    "customer_id",
    "application_code",
    "apple_topic",
    "default_language",
    "updated_at",
    "updated_by",
    "web_origins",
]


class Configurable(enum.StrEnum):
    """What `--clear` may name."""

    APPLE_TOPIC = "apple-topic"
    WEB_ORIGINS = "web-origins"
    DEFAULT_LANGUAGE = "default-language"


CodeArgument = Annotated[str, typer.Argument(metavar="APPLICATION_CODE", show_default=False)]
CustomerOption = Annotated[str, typer.Option("--customer", "-c", help="Whose application.", show_default=False)]


@app.command("list")
def list_command(
    customer: Annotated[
        str | None, typer.Option("--customer", "-c", help="Only this one's. Default: all.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the applications that have a configuration."""
    customer_id = None if customer is None else parse_customer_id(customer, field="--customer")
    database, _ = open_database()
    with database.connect(Role.READER) as connection:
        rows = [asdict(one) for one in list_applications(connection, customer_id)]
    if not as_json:
        rows = [{**row, "web_origins": " ".join(row["web_origins"]) or None} for row in rows]
    show_rows(rows, COLUMNS, as_json=as_json, empty="no application has a configuration")


@app.command("show")
def show_command(code: CodeArgument, customer: CustomerOption, as_json: JsonOption = False) -> None:
    """Show what is configured for one application."""
    customer_id = parse_customer_id(customer, field="--customer")
    database, _ = open_database()
    with database.connect(Role.READER) as connection:
        found = find_application(connection, customer_id, code)
    if found is None:
        raise ClientManagerError(f"nothing is configured for application {code} of customer {customer_id}")
    if as_json:
        print_json(asdict(found))
    else:
        show_record({**asdict(found), "web_origins": " ".join(found.web_origins) or None})


@app.command("set")
def set_command(
    code: CodeArgument,
    customer: CustomerOption,
    *,
    apple_topic: Annotated[
        str | None,
        typer.Option(help="Apple's topic (bundle id) for push messages that name none.", show_default=False),
    ] = None,
    web_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="A web page that may send from browsers, such as https://www.acme.com. Repeat it for several: "
            "together they replace those that were configured.",
            show_default=False,
        ),
    ] = None,
    default_language: Annotated[
        str | None, typer.Option(help="The default language of messages that name none.", show_default=False)
    ] = None,
    clear: Annotated[
        list[Configurable] | None,
        typer.Option(
            metavar="NAME",
            help=f"One of {', '.join(Configurable)}: configure nothing for this any more. Repeat it for several.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Configure an application. What no option names stays as it is. Daemons follow within FLIPPER_REFRESH_MS."""
    customer_id = parse_customer_id(customer, field="--customer")
    given = {
        Configurable.APPLE_TOPIC: apple_topic,
        Configurable.WEB_ORIGINS: web_origin or None,
        Configurable.DEFAULT_LANGUAGE: default_language,
    }
    values: dict[str, Any] = {name.replace("-", "_"): value for name, value in given.items() if value is not None}
    for name in clear or ():
        if given[name] is not None:
            raise InvalidInputError("--clear", "another field than one that is set as well", str(name))
        values[name.replace("-", "_")] = [] if name is Configurable.WEB_ORIGINS else None
    change = ApplicationChange(**values)
    database, settings = open_database()
    with database.connect(Role.WRITER) as connection:
        audit = AuditLogger.from_settings(settings)
        changed = set_application(connection, audit, customer_id, code, change, actor=actor())
    _tell(code, customer_id, "is configured" if changed else "was configured so already")


@app.command("remove")
def remove_command(code: CodeArgument, customer: CustomerOption) -> None:
    """Forget all that is configured for an application."""
    customer_id = parse_customer_id(customer, field="--customer")
    database, settings = open_database()
    with database.connect(Role.WRITER) as connection:
        removed = remove_application(connection, AuditLogger.from_settings(settings), customer_id, code, actor=actor())
    _tell(code, customer_id, "has no configuration any more" if removed else "had no configuration")


def _tell(code: str, customer_id: int, what: str) -> None:
    console.print(f"application {code} of customer {customer_id} {what}", highlight=False, markup=False)
