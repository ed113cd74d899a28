"""The device mapper's input, decoded and checked: what is wrong is refused by the name of its field. No I/O."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from clientmgr.base.customer_ids import CustomerId
from clientmgr.contracts.applications import is_apple_topic
from clientmgr.contracts.decoding import (
    ContactId,
    Identifier,
    InvalidMessageError,
    Millis,
    check_identifier,
    checked_customer_id,
    decode,
)
from clientmgr.contracts.providers import Channel

CollapseId = Annotated[str, Meta(min_length=1)]
Badge = Annotated[int, Meta(ge=0, le=2**31 - 1)]

# https://developer.apple.com/documentation/usernotifications/sending-notification-requests-to-apns
MAX_COLLAPSE_ID_BYTES = 64

# https://firebase.google.com/docs/reference/fcm/rest/v1/projects.messages
KEYS_OF_FCM = frozenset({"from", "message_type"})
PREFIXES_OF_FCM = ("google", "gcm")


class Options(Struct, frozen=True, rename="camel"):
    """How a message is to be delivered."""

    priority: Literal["high", "normal"] = "high"
    collapse_id: CollapseId | None = None
    """Of messages with the same one a device shows the last."""
    silent: bool = False
    """For the application, not for the eye."""
    apple_topic: str | None = None
    """The application's bundle id. Absent: as the application's configuration says."""


class Content(Struct, frozen=True, rename="camel", gc=False):
    """What a contact is to read, in one language. Placeholders in it are the sender's business."""

    title: str | None = None
    body: str | None = None
    subtitle: str | None = None
    image_url: str | None = None
    url: str | None = None
    sound: str | None = None
    badge: Badge | None = None
    data: dict[str, Any] | None = None


class Recipient(Struct, frozen=True, rename="camel", gc=False):
    contact_id: ContactId
    contents: dict[str, Content]


class SendingMessage(Struct, frozen=True, rename="camel"):
    """A message of `sending-<batch|tx>-devicemapper-<dg>`."""

    message_id: Identifier
    customer_id: int
    application_code: Identifier
    campaign_id: str
    channel: Channel
    recipients: list[Recipient]
    expires_at: Millis | None = None
    options: Options = Options()
    filter: Any = None
    default_language: str | None = None
    """Absent: as the application's configuration says."""


_DECODER = msgspec.json.Decoder(SendingMessage)


def decode_message(data: bytes) -> tuple[CustomerId, SendingMessage]:
    """The message, or `InvalidMessageError` that names the field."""
    message: SendingMessage = decode(_DECODER, data)
    customer_id = checked_customer_id(message.customer_id)
    check_identifier("applicationCode", message.application_code)
    _check_header_value("options.collapseId", message.options.collapse_id)
    topic = message.options.apple_topic
    if message.channel == "push" and topic and not is_apple_topic(topic):
        raise InvalidMessageError(f"options.appleTopic: expected a bundle id such as com.acme.app, got {topic!r}")
    collapse_id = message.options.collapse_id
    if message.channel == "push" and collapse_id and len(collapse_id.encode()) > MAX_COLLAPSE_ID_BYTES:
        raise InvalidMessageError(
            f"options.collapseId: expected at most {MAX_COLLAPSE_ID_BYTES} bytes for channel push,"
            f" got {len(collapse_id.encode())}"
        )
    if message.channel == "push":
        _check_data(message.recipients)
    return customer_id, message


def _check_data(recipients: list[Recipient]) -> None:
    """FCM keeps some keys for itself. Refused here, whoever has which phone: else chance would decide what is an error.

    Every content of every recipient comes by, and hardly any has data: all else waits until one has.
    """
    for place, recipient in enumerate(recipients):
        for content in recipient.contents.values():
            if content.data:
                _check_keys(place, content.data)


def _check_keys(place: int, data: dict[str, Any]) -> None:
    for key in data:
        if key in KEYS_OF_FCM or key.startswith(PREFIXES_OF_FCM):
            raise InvalidMessageError(
                f"recipients[{place}].contents[...].data: expected no key that FCM keeps for itself"
                f" (from, message_type, google…, gcm…), got {key!r}"
            )


def _check_header_value(field: str, value: str | None) -> None:
    """It travels in an HTTP header: a line break in it would be the beginning of another one."""
    if value is not None and not value.isprintable():
        raise InvalidMessageError(f"{field}: expected printable characters, got {value!r}")
