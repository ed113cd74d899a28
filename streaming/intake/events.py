"""From a request to the writer's messages (docs/message_catalogue.md), checked by the writer's own decoder. No I/O.

Customer and application are the key's. Whoever claims others is refused, and so is a merge: it is about contacts of all
applications.
"""

import functools
import hashlib
import uuid
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from clientmgr.broker.interface import Message
from clientmgr.contracts.decoding import Identifier, InvalidMessageError, Millis, check_identifier, decode
from clientmgr.contracts.device_events import CONTACT_MERGED, ClientEvent, EventType, decode_event
from clientmgr.tenants.live_intake_keys import LiveKey
from streaming.intake.problems import FieldProblem, RefusedError, invalid, wrong_field
from streaming.intake.routes import Route

JSON: Final = "application/json"
JSON_LINES: Final = "application/x-ndjson"
MOST_ERRORS: Final = 20
"""That one answer lists."""


class Defaults(Struct, frozen=True):
    """What events get that do not say it themselves."""

    now_ms: int
    occurred_at: int
    event_id: str = ""
    """Empty: a random one."""
    repeats_are_dropped: bool = False
    """Whether the transport can tell an event that it has already (Google Pub/Sub can't)."""

    def event_id_of(self, index: int | None) -> str:
        if not self.event_id:
            return str(uuid.uuid4())
        return self.event_id if index is None else f"{self.event_id}-{index}"


class _Sent(Struct, frozen=True, rename="camel"):
    """An event as the caller sends it."""

    event_type: EventType
    client_id: Identifier | UnsetType = UNSET
    event_id: Identifier | UnsetType = UNSET
    occurred_at: Millis | UnsetType = UNSET
    customer_id: int | UnsetType = UNSET
    application_code: str | UnsetType = UNSET
    payload: Raw = Raw(b"{}")


_SENT: Final = msgspec.json.Decoder(_Sent)
_MANY: Final = msgspec.json.Decoder(list[Raw])
_ENCODER: Final = msgspec.json.Encoder()
_NARROWING: Final = functools.cache(msgspec.json.Decoder)


class Intake(Struct, frozen=True):
    """Messages to publish, and the ids of their events."""

    messages: list[Message]
    event_ids: list[str]


def device_event(key: LiveKey, route: Route, client_id: str, body: bytes, defaults: Defaults) -> Intake:
    """The event of an operation on a device. Errors name the body's fields."""
    event_id = defaults.event_id_of(None)
    try:
        payload = b"{}"
        if route.bodies:
            payload = body
            # Here already: else what is no JSON would be found where it stands in the event.
            narrowed = decode(_NARROWING(route.bodies[0] if route.narrows else Raw), body, prefix="body")
            if route.narrows:
                payload = _ENCODER.encode(narrowed)
        message = _message(
            ClientEvent(
                event_id,
                route.event_type,
                key.customer_id,
                defaults.occurred_at,
                key.application_code,
                client_id,
                Raw(payload),
            ),
            defaults,
            is_named=bool(defaults.event_id),
        )
    except InvalidMessageError as error:
        raise invalid([wrong_field(_of_body(str(error)))]) from None
    return Intake([message], [event_id])


def sent_events(key: LiveKey, body: bytes, content_type: str, most: int, defaults: Defaults) -> Intake:
    """The events of a body: one, a JSON array, or one a line. All of them are good, or none is taken."""
    pieces, is_batch = _pieces(body, content_type)
    if len(pieces) > most:
        raise RefusedError(413, f"at most {most} events in a request, got {len(pieces)}")
    if not pieces:
        raise invalid([FieldProblem("body", "expected at least one event, got none")])
    messages: list[Message] = []
    event_ids: list[str] = []
    errors: list[FieldProblem] = []
    for index, piece in enumerate(pieces):
        place = index if is_batch else None
        try:
            sent: _Sent = decode(_SENT, piece)
            event = _filled_in(key, sent, place, defaults)
            messages.append(_message(event, defaults, is_named=bool(defaults.event_id) or sent.event_id is not UNSET))
            event_ids.append(event.event_id)
        except InvalidMessageError as error:
            errors.append(wrong_field(str(error), index=place))
            if len(errors) >= MOST_ERRORS:
                break
    if errors:
        raise invalid(errors)
    return Intake(messages, event_ids)


def _pieces(body: bytes, content_type: str) -> tuple[Sequence[bytes | Raw], bool]:
    if content_type == JSON_LINES:
        return [line for line in body.split(b"\n") if line.strip()], True
    if body.lstrip(b" \t\r\n")[:1] != b"[":
        return [body], False
    try:
        found: list[Raw] = decode(_MANY, body, prefix="body")
    except InvalidMessageError as error:
        raise invalid([wrong_field(str(error))]) from None
    return found, True


def _filled_in(key: LiveKey, sent: _Sent, index: int | None, defaults: Defaults) -> ClientEvent:
    if sent.event_type == CONTACT_MERGED:
        raise RefusedError(
            403,
            "eventType: a merge is about a customer's contacts in all applications; publish it as a message",
            errors=[FieldProblem("eventType", "not with the key of an application", index)],
        )
    _same("customerId", sent.customer_id, key.customer_id, index)
    _same("applicationCode", sent.application_code, key.application_code, index)
    return ClientEvent(
        defaults.event_id_of(index) if sent.event_id is UNSET else sent.event_id,
        sent.event_type,
        key.customer_id,
        defaults.occurred_at if sent.occurred_at is UNSET else sent.occurred_at,
        key.application_code,
        "" if sent.client_id is UNSET else sent.client_id,
        sent.payload,
    )


def _same(field: str, claimed: Any, of_key: Any, index: int | None) -> None:
    if claimed is not UNSET and claimed != of_key:
        detail = "the key is for another; leave it out"
        raise RefusedError(403, f"{field}: {detail}", errors=[FieldProblem(field, detail, index)])


def _message(event: ClientEvent, defaults: Defaults, *, is_named: bool) -> Message:
    """`is_named`: the caller gave the event its id, and may send it again. An id that we made up never comes again."""
    check_identifier("eventId", event.event_id)
    data = _ENCODER.encode(event)
    decode_event(data, now_ms=defaults.now_ms)
    dedup_key = None
    if is_named and defaults.repeats_are_dropped:
        whole = f"intake\0{event.customer_id}\0{event.application_code}\0{event.event_id}"
        dedup_key = hashlib.sha256(whole.encode()).hexdigest()
    return Message(data, str(event.customer_id), event.client_id, dedup_key=dedup_key)


def _of_body(text: str) -> str:
    """In the caller's words: the payload is its body."""
    return text.removeprefix("payload.") if text.startswith("payload.") else text.replace("payload: ", "body: ", 1)
