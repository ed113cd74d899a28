"""The writer's messages: decoded, checked, and refused by the name of the field that is wrong. No I/O."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.hash_length import HASH_BYTES
from clientmgr.contracts.decoding import (
    ContactId,
    Identifier,
    InvalidMessageError,
    Millis,
    check_identifiers,
    check_occurred_at,
    checked_customer_id,
    decode,
)
from clientmgr.contracts.device_fields import INFO, with_fields
from clientmgr.contracts.push_tokens import TokenKind

# Deeper than anybody's settings, and far from what recursion can't take.
MAX_NESTING = 100

EventType = Literal[
    "client.registered",
    "client.updated",
    "client.pushTokenSet",
    "client.pushTokenCleared",
    "client.contactLinked",
    "client.contactUnlinked",
    "client.contactMerged",
    "client.deleted",
]

CONTACT_MERGED = "client.contactMerged"
"""The one event that is about contacts: it names no application and no client."""


class ClientEvent(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The envelope that all event types share; the payload is decoded by type."""

    event_id: Identifier
    event_type: EventType
    customer_id: int
    occurred_at: Millis
    application_code: Identifier = ""
    client_id: Identifier = ""
    payload: msgspec.Raw = msgspec.Raw(b"{}")


@with_fields(INFO, lambda field: (field.name, field.kind.event_type | UnsetType | None, UNSET))
class InfoPayload(Struct, frozen=True, gc=False, rename="camel"):
    """Of `registered` and `updated`. Absent: unchanged; null: cleared."""


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


ContactHash = Annotated[
    str, Meta(pattern=f"^[0-9a-f]{{{2 * HASH_BYTES}}}$", min_length=2 * HASH_BYTES, max_length=2 * HASH_BYTES)
]
"""What the erasure's sweep leaves of a deleted contact's id, in a message that nobody may have read yet.

Nobody else has a reason to publish one, and it gives nobody more than an id does. Without our key it can't be made, and
one that is made up belongs to no contact. A device that is linked by it never gets a contact's id from it.
"""


class ContactPayload(Struct, frozen=True, gc=False, rename="camel"):
    """The contact's id or its hash, never both."""

    contact_id: ContactId | UnsetType = UNSET
    contact_hash: ContactHash | UnsetType = UNSET


class ContactMergePayload(Struct, frozen=True, gc=False, rename="camel"):
    """All devices of the one contact become the other's. Of each the id or the hash, never both."""

    from_contact_id: ContactId | UnsetType = UNSET
    from_contact_hash: ContactHash | UnsetType = UNSET
    into_contact_id: ContactId | UnsetType = UNSET
    into_contact_hash: ContactHash | UnsetType = UNSET


class DecodedEvent(Struct, frozen=True, gc=False):
    """An event with its payload, ready to be folded."""

    event: ClientEvent
    customer_id: CustomerId
    payload: InfoPayload | PushTokenPayload | ContactPayload | ContactMergePayload | None


class _Unread(Struct):
    """Of the other types: an object, as for all, and nothing of it is read."""


_PAYLOADS: dict[str, msgspec.json.Decoder[Any]] = {
    "client.registered": msgspec.json.Decoder(InfoPayload),
    "client.updated": msgspec.json.Decoder(InfoPayload),
    "client.pushTokenSet": msgspec.json.Decoder(PushTokenPayload),
    "client.contactLinked": msgspec.json.Decoder(ContactPayload),
    CONTACT_MERGED: msgspec.json.Decoder(ContactMergePayload),
}
_NOTHING_READ = msgspec.json.Decoder(_Unread | None)
_ENVELOPE = msgspec.json.Decoder(ClientEvent)


def decode_event(data: bytes, *, now_ms: int | None = None) -> DecodedEvent:
    """The event in a message of `client-manager.writer`, or `InvalidMessageError` that names the field."""
    event = decode(_ENVELOPE, data)
    customer_id = checked_customer_id(event.customer_id)
    check_occurred_at(event.occurred_at, now_ms=now_ms)
    has_nul = b"\\u0000" in data
    if has_nul or not (_is_plain(event.application_code) and _is_plain(event.client_id)):
        _check_subject(event)
    payload = decode(_PAYLOADS.get(event.event_type, _NOTHING_READ), event.payload, prefix="payload")
    if isinstance(payload, InfoPayload):
        # Hardly any message has this many brackets, so that hardly any is searched through.
        if has_nul or data.count(b"[") + data.count(b"{") > MAX_NESTING:
            _check_storable(payload)
    elif isinstance(payload, PushTokenPayload):
        _check_token(payload)
        if has_nul:
            _check_storable(payload)
    elif isinstance(payload, ContactPayload):
        _check_contact("contact", payload.contact_id, payload.contact_hash)
    elif isinstance(payload, ContactMergePayload):
        _check_merge(payload)
    else:
        payload = None
    return DecodedEvent(event, customer_id, payload)


def _is_plain(identifier: str) -> bool:
    """Whether it needs no closer look, but for NULs: its characters were counted when it was decoded."""
    return bool(identifier) and identifier.isascii()


def _check_subject(event: ClientEvent) -> None:
    """An event is about a device, and says which; only a merge is about contacts."""
    if event.event_type == CONTACT_MERGED:
        return
    for field, value in (("applicationCode", event.application_code), ("clientId", event.client_id)):
        if not value:
            raise InvalidMessageError(f"{field}: expected, but missing")
    check_identifiers(event.application_code, event.client_id)


def _check_storable(payload: Struct) -> None:
    """Refuse what the tables can't hold: found here it costs one message, found there a batch is taken apart for it."""
    for name, value in msgspec.to_builtins(payload).items():
        check_storable(value, f"payload.{name}")


def check_storable(value: Any, field: str, levels: int = MAX_NESTING) -> None:
    """Refuse a value with what no table can hold: NUL characters, or more levels than anybody's settings have."""
    if isinstance(value, str) and "\0" in value:
        raise InvalidMessageError(f"{field}: expected text without NUL characters, got one")
    if isinstance(value, dict | list) and not levels:
        raise InvalidMessageError(f"{field}: expected at most {MAX_NESTING} levels, got more")
    if isinstance(value, dict):
        for key, item in value.items():
            check_storable(key, field, levels)
            check_storable(item, field, levels - 1)
    elif isinstance(value, list):
        for item in value:
            check_storable(item, field, levels - 1)


def _check_contact(name: str, contact_id: int | UnsetType, contact_hash: str | UnsetType) -> None:
    if contact_id is UNSET and contact_hash is UNSET:
        raise InvalidMessageError(f"payload.{name}Id: expected, but missing")
    if contact_id is not UNSET and contact_hash is not UNSET:
        raise InvalidMessageError(f"payload.{name}Hash: expected only without {name}Id, got both")


def _check_merge(payload: ContactMergePayload) -> None:
    old = payload.from_contact_id, payload.from_contact_hash
    new = payload.into_contact_id, payload.into_contact_hash
    _check_contact("fromContact", *old)
    _check_contact("intoContact", *new)
    if old == new:
        raise InvalidMessageError("payload.intoContactId: expected another contact than fromContactId, got the same")


def _check_token(payload: PushTokenPayload) -> None:
    wanted, other = ("webPush", payload.push_token) if payload.kind == "webpush" else ("pushToken", payload.web_push)
    given = payload.web_push if payload.kind == "webpush" else payload.push_token
    if given is UNSET:
        raise InvalidMessageError(f"payload.{wanted}: expected with kind {payload.kind!r}, got nothing")
    if other is not UNSET:
        raise InvalidMessageError(f"payload.kind: {payload.kind!r} goes with {wanted} alone")
