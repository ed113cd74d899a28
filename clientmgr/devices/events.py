"""The writer's messages: decoded, checked, and refused by the name of the field that is wrong. No I/O."""

import re
import time
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from clientmgr.errors import InvalidInputError, PermanentError
from clientmgr.tenants.names import CustomerId, parse_customer_id

# A clock that is this far ahead would freeze what it writes: nothing later could win against it.
FUTURE_TOLERANCE_MS = 5 * 60 * 1000
# Two identifiers make a key, and an index entry holds 2,704 bytes. Characters are not bytes.
MAX_IDENTIFIER_BYTES = 512
# Deeper than anybody's settings, and far from what recursion can't take.
MAX_NESTING = 100

Identifier = Annotated[str, Meta(min_length=1, max_length=512)]
Millis = Annotated[int, Meta(gt=0, lt=2**53)]
ContactId = Annotated[int, Meta(gt=0, le=2**63 - 1)]
TokenKind = Literal["apns", "fcm_token", "fcm_fid", "hms", "webpush"]

EventType = Literal[
    "client.registered",
    "client.updated",
    "client.pushTokenSet",
    "client.pushTokenCleared",
    "client.contactLinked",
    "client.contactUnlinked",
    "client.deleted",
]


class InvalidMessageError(PermanentError):
    """The message is not what its topic carries. Says which field, what was expected, what was found."""


class ClientEvent(Struct, frozen=True, gc=False, rename="camel"):
    """The envelope that all seven event types share; the payload is decoded by type."""

    event_id: Identifier
    event_type: EventType
    customer_id: int
    application_code: Identifier
    client_id: Identifier
    occurred_at: Millis
    payload: msgspec.Raw = msgspec.Raw(b"{}")


class InfoPayload(Struct, frozen=True, gc=False, rename="camel"):
    """Of `registered` and `updated`. Absent: unchanged; null: cleared."""

    hardware_id: str | UnsetType | None = UNSET
    platform: str | UnsetType | None = UNSET
    application_version: str | UnsetType | None = UNSET
    device_model: str | UnsetType | None = UNSET
    os_version: str | UnsetType | None = UNSET
    sdk_version: str | UnsetType | None = UNSET
    language: str | UnsetType | None = UNSET
    timezone: str | UnsetType | None = UNSET
    push_enabled: bool | UnsetType | None = UNSET
    push_settings: dict[str, Any] | UnsetType | None = UNSET
    attributes: dict[str, Any] | UnsetType | None = UNSET


class WebPushKeys(Struct, frozen=True, gc=False):
    p256dh: Identifier
    auth: Identifier


class WebPush(Struct, frozen=True, gc=False):
    """A browser's push subscription."""

    endpoint: Annotated[str, Meta(min_length=1, max_length=8192)]
    keys: WebPushKeys


class PushTokenPayload(Struct, frozen=True, gc=False, rename="camel"):
    kind: TokenKind
    push_token: Annotated[str, Meta(min_length=1, max_length=8192)] | UnsetType = UNSET
    web_push: WebPush | UnsetType = UNSET


class ContactPayload(Struct, frozen=True, gc=False, rename="camel"):
    contact_id: ContactId


class DecodedEvent(Struct, frozen=True, gc=False):
    """An event with its payload, ready to be folded."""

    event: ClientEvent
    customer_id: CustomerId
    payload: InfoPayload | PushTokenPayload | ContactPayload | None


_PAYLOADS: dict[str, msgspec.json.Decoder[Any]] = {
    "client.registered": msgspec.json.Decoder(InfoPayload),
    "client.updated": msgspec.json.Decoder(InfoPayload),
    "client.pushTokenSet": msgspec.json.Decoder(PushTokenPayload),
    "client.contactLinked": msgspec.json.Decoder(ContactPayload),
}
_ENVELOPE = msgspec.json.Decoder(ClientEvent)
_MISSING = re.compile(r"Object missing required field `(\w+)`(?: - at `\$\.?(.*)`)?")
_WRONG = re.compile(r"(.*) - at `\$\.?(.*)`")


def decode_event(data: bytes, *, now_ms: int | None = None) -> DecodedEvent:
    """The event in a message of `client-manager.writer`, or `InvalidMessageError` that names the field."""
    event = decode(_ENVELOPE, data)
    customer_id = checked_customer_id(event.customer_id)
    check_occurred_at(event.occurred_at, now_ms=now_ms)
    check_identifiers(event.application_code, event.client_id)
    decoder = _PAYLOADS.get(event.event_type)
    payload = None if decoder is None else decode(decoder, event.payload, prefix="payload")
    if isinstance(payload, PushTokenPayload):
        _check_token(payload)
    _check_storable(data, payload)
    return DecodedEvent(event, customer_id, payload)


def decode(decoder: msgspec.json.Decoder[Any], data: bytes | msgspec.Raw, *, prefix: str = "") -> Any:
    """Decode; whatever is wrong with the data is an `InvalidMessageError` by field."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise InvalidMessageError(_by_field(str(error), prefix)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidMessageError(f"{prefix or 'message'}: not JSON in UTF-8 ({error})") from None


def checked_customer_id(value: int) -> CustomerId:
    try:
        return parse_customer_id(value)
    except InvalidInputError as error:
        raise InvalidMessageError(str(error)) from None


def check_occurred_at(occurred_at: int, *, field: str = "occurredAt", now_ms: int | None = None) -> None:
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    if occurred_at > now_ms + FUTURE_TOLERANCE_MS:
        ahead_s = (occurred_at - now_ms) // 1000
        raise InvalidMessageError(f"{field}: expected a time of the past, got one {ahead_s} s ahead")


def check_identifiers(application_code: str, client_id: str) -> None:
    check_identifier("applicationCode", application_code)
    check_identifier("clientId", client_id)


def is_identifier(value: str) -> bool:
    """Whether a device or an application could have this id."""
    try:
        check_identifier("id", value)
    except (InvalidMessageError, UnicodeEncodeError):
        return False
    return 0 < len(value) <= MAX_IDENTIFIER_BYTES


def check_identifier(field: str, value: str) -> None:
    if not value.isascii() and len(value.encode()) > MAX_IDENTIFIER_BYTES:
        raise InvalidMessageError(f"{field}: expected at most {MAX_IDENTIFIER_BYTES} bytes of UTF-8, got more")
    if "\0" in value:
        raise InvalidMessageError(f"{field}: expected text without NUL characters, got one")


def _check_storable(data: bytes, payload: Struct | None) -> None:
    """Refuse what the tables can't hold: found here it costs one message, found there a batch is taken apart for it."""
    # Hardly any message has a NUL or this many brackets, so that hardly any is searched through.
    if payload is not None and (b"\\u0000" in data or data.count(b"[") + data.count(b"{") > MAX_NESTING):
        for name, value in msgspec.to_builtins(payload).items():
            _search(value, f"payload.{name}", MAX_NESTING)


def _search(value: Any, field: str, levels: int) -> None:
    if isinstance(value, str) and "\0" in value:
        raise InvalidMessageError(f"{field}: expected text without NUL characters, got one")
    if isinstance(value, dict | list) and not levels:
        raise InvalidMessageError(f"{field}: expected at most {MAX_NESTING} levels, got more")
    if isinstance(value, dict):
        for key, item in value.items():
            _search(key, field, levels)
            _search(item, field, levels - 1)
    elif isinstance(value, list):
        for item in value:
            _search(item, field, levels - 1)


def _check_token(payload: PushTokenPayload) -> None:
    wanted, other = ("webPush", payload.push_token) if payload.kind == "webpush" else ("pushToken", payload.web_push)
    given = payload.web_push if payload.kind == "webpush" else payload.push_token
    if given is UNSET:
        raise InvalidMessageError(f"payload.{wanted}: expected with kind {payload.kind!r}, got nothing")
    if other is not UNSET:
        raise InvalidMessageError(f"payload.kind: {payload.kind!r} goes with {wanted} alone")


def _by_field(problem: str, prefix: str) -> str:
    if match := _MISSING.fullmatch(problem):
        return f"{_path(prefix, match[2], match[1])}: expected, but missing"
    if match := _WRONG.fullmatch(problem):
        return f"{_path(prefix, match[2])}: {_lower(match[1])}"
    return f"{prefix or 'message'}: {_lower(problem)}"


def _path(*parts: str | None) -> str:
    return ".".join(part for part in parts if part)


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
