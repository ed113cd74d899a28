"""What the device mapper would do with a sample message for a contact: by the daemon's own code, sending nothing."""

import time
from typing import Any, Literal

import botocore.exceptions
import msgspec
from msgspec import Struct

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import TransientError
from clientmgr.base.masking import masked
from clientmgr.contracts.decoding import InvalidMessageError
from clientmgr.contracts.topics import DeviceMapperTopics
from clientmgr.sending.explanation import DeviceExplanation, explain
from clientmgr.sending.mapping import OutMessage
from clientmgr.sending.samples import Channel, sample_for
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import ContactNumber, CustomerNumber, Text, api_get


class MappingRequest(Struct, frozen=True, rename="camel"):
    customer_id: CustomerNumber
    application_code: Text
    contact_id: ContactNumber
    channel: Channel = "push"
    sending_type: Literal["batch", "tx"] = "batch"


class MappedDevice(Struct, frozen=True, rename="camel"):
    """What a device would get, or why it would get nothing."""

    client_id: str
    store: str
    platform: str | None
    language: str | None
    verdict: str
    """`SENT`, `SKIPPED`, `REFUSED` (with the whole message), or the reason of a not-sent event."""
    because: list[str]
    topic: str | None
    request: Any
    """What the provider's sender would get, with secrets masked."""


class MappingExplanation(Struct, frozen=True, rename="camel"):
    """What a sample message would become for a contact."""

    strategy: str
    flippers: dict[str, bool]
    reason: str | None
    """Why the contact would get nothing."""
    refusal: str | None
    """Why the message would be refused as a whole."""
    devices: list[MappedDevice]


async def explain_mapping(context: Context, _visitor: Visitor, request: MappingRequest) -> MappingExplanation:
    message = sample_for(
        CustomerId(request.customer_id),
        request.application_code,
        request.contact_id,
        now_ms=time.time_ns() // 1_000_000,
        channel=request.channel,
    )
    try:
        async with context.reading() as connection:
            explained = await explain(
                context.settings, connection, CustomerId(request.customer_id), message, request.contact_id
            )
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
        raise TransientError(
            f"DynamoDB, where this customer's devices are read from, can't be asked: {error}"
        ) from error
    outputs = DeviceMapperTopics(request.sending_type, "dg00").outputs
    return MappingExplanation(
        strategy=str(explained.strategy),
        flippers=explained.flippers,
        reason=None if explained.reason is None else str(explained.reason),
        refusal=explained.refusal,
        devices=[_mapped(one, outputs) for one in explained.devices],
    )


def _mapped(one: DeviceExplanation, outputs: dict[str, str]) -> MappedDevice:
    sent = one.verdict if isinstance(one.verdict, OutMessage) else None
    refused = isinstance(one.verdict, InvalidMessageError)
    return MappedDevice(
        client_id=one.device.client_id,
        store=one.store,
        platform=one.device.platform,
        language=one.language,
        verdict="SENT" if sent else "REFUSED" if refused else str(one.verdict or "SKIPPED"),
        because=one.because,
        topic=None if sent is None else outputs[sent.provider],
        request=None if sent is None else masked(msgspec.json.decode(msgspec.json.encode(sent.request))),
    )


OPERATIONS = (
    api_get(
        "/devices/mapping",
        "What the device mapper would do with a sample message for a contact.",
        explain_mapping,
    ),
)
