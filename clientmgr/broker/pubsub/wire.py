"""Converts messages to and from Pub/Sub's form. It has no field for the contact or device: that is an attribute."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from typing import Any

from google.pubsub_v1 import types

from clientmgr.base.errors import InvalidInputError
from clientmgr.broker.interface import MAX_ATTRIBUTES, Message, ReceivedMessage
from clientmgr.broker.message_checks import check_message, refuse_special
from clientmgr.contracts.publishers import without_stamp

KEY_ATTRIBUTE = "cm-key"

_MessageProto: Any = types.PubsubMessage.pb()

# One Publish request: Google takes 1000 messages and 10 MB, attributes and all.
MAX_REQUEST_MESSAGES = 500
MAX_REQUEST_BYTES = 9_000_000


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message in hand, and what it is acknowledged with."""

    message: ReceivedMessage
    ack_id: str
    counted: bool
    """Whether the server counts deliveries; else we do."""
    repeated_ack_ids: tuple[str, ...] = ()
    """Ids of further deliveries of the same message in this batch."""

    @property
    def ack_ids(self) -> tuple[str, ...]:
        return (self.ack_id, *self.repeated_ack_ids)


def check(topic: str, message: Message, max_bytes: int) -> None:
    """Refuse what the other transport refuses, and messages that leave no room for the key's attribute."""
    check_message(topic, message, max_bytes)
    check_carryable(message)


def check_carryable(message: Message) -> None:
    refuse_special(message)
    if KEY_ATTRIBUTE in message.attributes:
        raise InvalidInputError("attributes", f"any name but {KEY_ATTRIBUTE}, which is ours", KEY_ATTRIBUTE)
    if message.key and len(message.attributes) >= MAX_ATTRIBUTES:
        raise InvalidInputError("attributes", f"at most {MAX_ATTRIBUTES - 1} beside a key", len(message.attributes))
    if len(message.data) > MAX_REQUEST_BYTES:
        raise InvalidInputError("data", f"at most {MAX_REQUEST_BYTES} bytes beside attributes", len(message.data))


def to_proto(message: Message) -> Any:
    # Who publishes is for the gateway to say: it refuses messages that do.
    attributes = without_stamp(message.attributes)
    if message.key:
        attributes[KEY_ATTRIBUTE] = message.key
    return _MessageProto(data=message.data, attributes=attributes, ordering_key=message.tenant)


def from_proto(topic: str, received: Any) -> Delivery:
    message = received.message
    # Google lets anybody set any attribute.
    attributes = without_stamp(message.attributes)
    key = attributes.pop(KEY_ATTRIBUTE, "")
    return Delivery(
        ReceivedMessage(
            topic=topic,
            message_id=message.message_id,
            data=message.data,
            tenant=message.ordering_key,
            key=key,
            attributes=attributes,
            attempt=max(1, received.delivery_attempt),
            published_at=message.publish_time.ToDatetime(tzinfo=UTC),
        ),
        received.ack_id,
        counted=received.delivery_attempt > 0,
    )


def once_each(deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Each message once, in their order: a server that delivers at least once may do so twice in a batch."""
    by_message: dict[str, Delivery] = {}
    for delivery in deliveries:
        message_id = delivery.message.message_id
        first = by_message.setdefault(message_id, delivery)
        if first is not delivery:
            by_message[message_id] = replace(first, repeated_ack_ids=(*first.repeated_ack_ids, delivery.ack_id))
    return list(by_message.values())


def storable(text: str) -> str:
    """Without NUL, which other publishers may use in keys and attributes and PostgreSQL's text can't hold."""
    return text.replace("\0", "\\0")


def requests(messages: Sequence[Message]) -> list[list[Any]]:
    """The messages, in their order, in portions that one request can hold."""
    portions: list[list[Any]] = [[]]
    size = 0
    for message in messages:
        proto = to_proto(message)
        bytes_more = proto.ByteSize()
        if portions[-1] and (len(portions[-1]) >= MAX_REQUEST_MESSAGES or size + bytes_more > MAX_REQUEST_BYTES):
            portions.append([])
            size = 0
        portions[-1].append(proto)
        size += bytes_more
    return portions
