"""Whether a message is what its topic carries, asked before it is published: by the decoders that the daemons use."""

import time
from collections.abc import Callable
from typing import Any

import msgspec

from clientmgr.base.customer_ids import parse_customer_id
from clientmgr.base.errors import InvalidInputError
from clientmgr.broker.interface import Message, check_publishable
from clientmgr.contracts import deletions, device_events, lifecycle, sending, topics, verdicts
from clientmgr.contracts.decoding import is_identifier


class _Addressed(msgspec.Struct):
    """The one field that decides where a message goes."""

    customer_id: Any = msgspec.field(name="customerId", default=msgspec.UNSET)


def check(topic: str, data: bytes, *, max_bytes: int) -> None:
    """`InvalidInputError` or `InvalidMessageError` by field. Of a topic that is not ours it only has to be JSON."""
    check_publishable(topic, Message(data), max_bytes)
    decode = _DECODERS.get(topic)
    if decode is not None:
        decode(data)
    elif topic.startswith("sending-") and "-devicemapper-" in topic:
        from clientmgr.sending.mapping import MessageMapper  # who uses the log alone has none of what it needs

        _, message = sending.decode_message(data)
        # It also refuses filters that no device could be judged by.
        MessageMapper(message, now_ms=time.time_ns() // 1_000_000, max_message_bytes=max_bytes)


def customer_of(data: bytes) -> str:
    """The customer that the message names, as the log writes it; empty when it names none."""
    if not data.lstrip().startswith(b"{"):
        return ""
    try:
        customer_id = msgspec.json.decode(data, type=_Addressed).customer_id
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidInputError("data", f"JSON that our workers can read ({error})", data[:60]) from None
    return "" if customer_id is msgspec.UNSET else str(parse_customer_id(customer_id))


class Subject(msgspec.Struct, frozen=True):
    """What a message is about, as far as it says."""

    customer_id: int | None = None
    application_code: str | None = None
    client_id: str | None = None
    contact_id: int | None = None


def subject_of(data: bytes) -> Subject:
    """Of a message that failed, so nothing in it need be what it should be."""
    try:
        message = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return Subject()
    if not isinstance(message, dict):
        return Subject()
    payload = message.get("payload")
    contact = message.get("contactId", payload.get("contactId") if isinstance(payload, dict) else None)
    return Subject(
        _number(message.get("customerId"), 10**18),
        _text(message.get("applicationCode")),
        _text(message.get("clientId")),
        _number(contact, 2**63),
    )


def _number(value: Any, below: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < below else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value and is_identifier(value) else None


_DECODERS: dict[str, Callable[[bytes], object]] = {
    topics.WRITER: device_events.decode_event,
    topics.REPUBLISHER: device_events.decode_event,
    topics.CONTACT_DELETION: deletions.decode_deletion,
    topics.ACTIVATE_CUSTOMER: lifecycle.decode_activation,
    topics.ACCOUNT_DELETION: lifecycle.decode_deletion,
    topics.PUSH_TOKEN_STATUS: lambda data: verdicts.decode_verdict(topics.PUSH_TOKEN_STATUS, data),
    topics.WEB_PUSH_TOKEN_STATUS: lambda data: verdicts.decode_verdict(topics.WEB_PUSH_TOKEN_STATUS, data),
}
