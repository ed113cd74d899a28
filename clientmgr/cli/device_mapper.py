"""`clientmgr device-mapper …`: what the device mapper would do, and why. The daemon itself is `clientmgr run …`."""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clientmgr.audit.log import AuditEntry, AuditLogger
from clientmgr.base.customer_ids import CustomerId, parse_customer_id
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import InvalidInputError
from clientmgr.base.masking import masked
from clientmgr.base.settings import Settings
from clientmgr.cli.output import JsonOption, actor, console, open_database, print_json, show_record

if TYPE_CHECKING:
    from clientmgr.contracts.sending import SendingMessage
    from clientmgr.sending.explanation import DeviceExplanation, Explanation

app = typer.Typer(help="The device mapper: explain what a message becomes.", no_args_is_help=True)

STANDARD_INPUT = "-"


@app.callback()
def device_mapper() -> None:
    """The device mapper: explain what a message becomes."""


@app.command()
def explain(
    customer: Annotated[str, typer.Option("--customer", "-c", help="The customer's id.", show_default=False)],
    contact: Annotated[int, typer.Option(help="One of the message's recipients.", min=1, show_default=False)],
    message: Annotated[
        str,
        typer.Option(
            help="A file with a message of the mapper's topic; - is standard input. Without one: a sample push message "
            "to the application of the contact's device.",
            show_default=False,
        ),
    ] = "",
    sending_type: Annotated[Literal["batch", "tx"], typer.Option("--type", "-t", help="As which traffic.")] = "batch",
    *,
    delivery_group: Annotated[str, typer.Option("--dg", help="Of which delivery group.")] = "dg00",
    reveal: Annotated[
        bool, typer.Option("--reveal", help="Show push tokens in full. This is recorded in the audit log.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Tell, device by device, what a message becomes for a contact, and why. Nothing is sent."""
    from clientmgr.contracts.topics import DeviceMapperTopics

    topics = DeviceMapperTopics(sending_type, delivery_group)
    customer_id = parse_customer_id(customer, field="--customer")
    body = sys.stdin.buffer.read() if message == STANDARD_INPUT else Path(message).read_bytes() if message else None
    database, settings = open_database()
    explained = _decoded(customer_id, body) if body is not None else _sample(database, customer_id, contact)
    explanation = asyncio.run(_explain(database, settings, customer_id, contact, explained))
    if reveal:
        _audit_reveal(database, settings, customer_id, contact, len(explanation.devices))
    devices = [_as_object(one, topics.outputs, reveal=reveal) for one in explanation.devices]
    if as_json:
        print_json(
            {
                "customerId": customer_id,
                "contactId": contact,
                "strategy": explanation.strategy,
                "flippers": explanation.flippers,
                "reason": explanation.reason,
                "refusal": explanation.refusal,
                "devices": devices,
            }
        )
    else:
        _show(customer_id, contact, explanation, devices)


@app.command("send-samples")
def send_samples(
    customer: Annotated[str, typer.Option("--customer", "-c", help="The customer's id.", show_default=False)],
    sending_type: Annotated[Literal["batch", "tx"], typer.Option("--type", "-t", help="As which traffic.")] = "batch",
    delivery_group: Annotated[str, typer.Option("--dg", help="To which delivery group.")] = "dg00",
    *,
    recipients: Annotated[int, typer.Option(min=1, help="Contacts of a message, at most.")] = 50,
    messages: Annotated[int, typer.Option(min=0, help="How many messages; 0: until told to stop.")] = 1,
    every: Annotated[float, typer.Option(min=0.0, help="Seconds from one message to the next.")] = 5.0,
) -> None:
    """Publish sample messages for contacts that the customer has, in five languages. Ctrl-C stops it."""
    from clientmgr.base.async_main import run_until_stopped
    from clientmgr.contracts.topics import DeviceMapperTopics
    from clientmgr.local.load.sample_sending import send

    customer_id = parse_customer_id(customer, field="--customer")
    topics = DeviceMapperTopics(sending_type, delivery_group)
    database, settings = open_database(with_key=False)
    run_until_stopped(
        lambda stop: send(
            database, settings, customer_id, topics, stop, recipients=recipients, total=messages, every_s=every
        )
    )


def _decoded(customer_id: CustomerId, body: bytes) -> "SendingMessage":
    from clientmgr.contracts.sending import decode_message

    named, message = decode_message(body)
    if named != customer_id:
        raise InvalidInputError("--customer", f"the message's customer {named}", customer_id)
    return message


def _sample(database: Database, customer_id: CustomerId, contact_id: int) -> "SendingMessage":
    from clientmgr.devices.lookup import DeviceLookup
    from clientmgr.sending.samples import sample_for

    with database.connect(Role.READER, autocommit=True) as connection:
        devices = DeviceLookup(connection, customer_id).by_contact(contact_id, limit=1)
    if not devices:
        raise InvalidInputError("--contact", "one that has a device, or a --message to explain", contact_id)
    return sample_for(customer_id, devices[0].application_code, contact_id, now_ms=time.time_ns() // 1_000_000)


async def _explain(
    database: Database, settings: Settings, customer_id: CustomerId, contact_id: int, message: "SendingMessage"
) -> "Explanation":
    from clientmgr.sending.explanation import explain as explain_message

    async with await database.connect_async(Role.READER) as connection:
        return await explain_message(settings, connection, customer_id, message, contact_id)


def _as_object(one: "DeviceExplanation", topic_of: dict[str, str], *, reveal: bool) -> dict[str, Any]:
    import msgspec

    from clientmgr.contracts.decoding import InvalidMessageError
    from clientmgr.sending.mapping import OutMessage

    sent = one.verdict if isinstance(one.verdict, OutMessage) else None
    refused = isinstance(one.verdict, InvalidMessageError)
    request = None if sent is None else json.loads(msgspec.json.encode(sent.request))
    return {
        "clientId": one.device.client_id,
        "store": one.store,
        "platform": one.device.platform,
        "provider": one.device.provider,
        "applicationVersion": one.device.application_version,
        "deviceLanguage": one.device.language,
        "language": one.language,
        "verdict": "SENT" if sent else "REFUSED" if refused else one.verdict or "SKIPPED",
        "because": one.because,
        "topic": None if sent is None else topic_of[sent.provider],
        "outMessageId": None if sent is None else sent.out_message_id,
        "request": request if reveal else masked(request),
    }


def _show(customer_id: CustomerId, contact: int, explanation: "Explanation", devices: list[dict[str, Any]]) -> None:
    on = [name for name, state in explanation.flippers.items() if state]
    console.print(f"Customer {customer_id}, contact {contact}", style="bold", highlight=False)
    console.print(f"strategy: {explanation.strategy} (flippers on: {', '.join(on) or 'none'})", highlight=False)
    sent = sum(one["verdict"] == "SENT" for one in devices)
    gets = f"not sent: {explanation.reason}" if explanation.reason else f"{sent} of {len(devices)} devices get it"
    if explanation.refusal:
        gets = f"the message is refused, and nobody gets it: {explanation.refusal}"
    console.print(f"{gets}\n", highlight=False, markup=False)
    for one in devices:
        shown = {name: value for name, value in one.items() if name not in ("request", "because") and value is not None}
        show_record({**shown, "because": "; ".join(one["because"])} if one["because"] else shown)
        if one["request"] is not None:
            console.print(
                json.dumps(one["request"], indent=2, ensure_ascii=False), markup=False, highlight=False, soft_wrap=True
            )
        console.print()


def _audit_reveal(
    database: Database, settings: Settings, customer_id: CustomerId, contact_id: int, devices: int
) -> None:
    details = {"command": "device-mapper explain"}
    entry = AuditEntry(customer_id, actor(), "device.reveal", "revealed", contact_id, devices, details)
    with database.connect(Role.WRITER) as connection:
        AuditLogger.from_settings(settings).append(connection, [entry])
