"""Histories of events for a few devices, tokens and contacts, and the simple model of what they must leave behind."""

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from clientmgr.contracts.device_events import DecodedEvent, decode_event

CUSTOMER = 7
APPLICATIONS = ("A", "B")
CLIENTS = ("c1", "c2", "c3")
TOKENS = ("t1", "t2")
CONTACTS = (41, 42)
LATEST = 12


@dataclass(frozen=True)
class Happening:
    """One thing that happened: an event of the writer's topic, or the deletion of a contact."""

    kind: str
    at: int
    application_code: str = ""
    client_id: str = ""
    payload: str = "{}"

    def message(self, number: int = 0) -> dict[str, Any]:
        return {
            "eventId": f"e{number}",
            "eventType": self.kind,
            "customerId": CUSTOMER,
            "applicationCode": self.application_code,
            "clientId": self.client_id,
            "occurredAt": self.at,
            "payload": json.loads(self.payload),
        }

    def decoded(self) -> DecodedEvent:
        return decode_event(json.dumps(self.message()).encode())

    @property
    def content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.payload)
        return content


def contact_deletion(at: int, contact_id: int) -> Happening:
    return Happening("contact.deleted", at, payload=json.dumps({"contactId": contact_id}))


def _event(kind: str, payloads: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[Happening]:
    return st.builds(
        Happening,
        st.just(kind),
        st.integers(1, LATEST),
        st.sampled_from(APPLICATIONS),
        st.sampled_from(CLIENTS),
        payloads.map(lambda payload: json.dumps(payload, sort_keys=True)),
    )


_info = st.fixed_dictionaries(
    {},
    optional={
        "language": st.sampled_from(["en", "fr", None]),
        "applicationVersion": st.sampled_from(["1.0", "2.0"]),
        "pushEnabled": st.sampled_from([True, False, None]),
        "attributes": st.sampled_from([{"a": 1}, {"a": [2.0, "x"]}, None]),
    },
)
_token = st.one_of(
    st.sampled_from(TOKENS).map(lambda token: {"kind": "fcm_token", "pushToken": token}),
    st.just({"kind": "webpush", "webPush": {"endpoint": "https://push/1", "keys": {"p256dh": "p", "auth": "a"}}}),
)
_contact = st.sampled_from(CONTACTS).map(lambda contact: {"contactId": contact})
_nothing: st.SearchStrategy[dict[str, Any]] = st.just({})

happenings = st.one_of(
    _event("client.registered", _info),
    _event("client.updated", _info),
    _event("client.pushTokenSet", _token),
    _event("client.pushTokenCleared", _nothing),
    _event("client.contactLinked", _contact),
    _event("client.contactUnlinked", _nothing),
    _event("client.deleted", _nothing),
    st.builds(contact_deletion, st.integers(1, LATEST), st.sampled_from(CONTACTS)),
)
histories = st.lists(happenings, min_size=1, max_size=14)


@dataclass
class Device:
    """A device as the model sees it: plain values, no versions."""

    info: dict[str, Any] = field(default_factory=dict)
    token: str | None = None
    token_status: str = "none"
    contact_id: int | None = None
    last_seen: int = 0


class Model:
    """Applies a history in the order it happened, one by one, without a thought for late arrivals."""

    def __init__(self, history: list[Happening]) -> None:
        self.devices: dict[tuple[str, str], Device] = {}
        self._linked_to: dict[int, set[tuple[str, str]]] = {contact: set() for contact in CONTACTS}
        self._deleted_at: dict[int, int] = {}
        for happening in history:
            if happening.kind == "contact.deleted":
                contact = happening.content["contactId"]
                self._deleted_at[contact] = max(happening.at, self._deleted_at.get(contact, 0))
        parts = {part for happening in history for part in field_by_field(happening)}
        for part in sorted(parts, key=self._order):
            self._apply(part)

    def _order(self, happening: Happening) -> tuple[Any, ...]:
        """By time; within a millisecond values in their order, the greatest last, and deletions after all."""
        deletes = happening.kind in ("client.deleted", "contact.deleted") or self._links_to_the_dead(happening)
        value = happening.payload.strip("{}")  # nothing is the least value
        return happening.at, deletes, happening.client_id, token_digest(happening), value

    def _links_to_the_dead(self, happening: Happening) -> bool:
        if happening.kind != "client.contactLinked":
            return False
        return self._deleted_at.get(happening.content["contactId"], LATEST + 1) < happening.at

    def _apply(self, happening: Happening) -> None:
        key = (happening.application_code, happening.client_id)
        if happening.kind == "contact.deleted":
            for linked in self._linked_to[happening.content["contactId"]]:
                self.devices.pop(linked, None)
            return
        if happening.kind == "client.deleted" or self._links_to_the_dead(happening):
            self.devices.pop(key, None)
            return
        device = self.devices.setdefault(key, Device())
        device.last_seen = happening.at
        match happening.kind:
            case "client.registered" | "client.updated":
                device.info |= happening.content
            case "client.pushTokenSet":
                self._take_token(key, device, token_digest(happening))
            case "client.pushTokenCleared":
                device.token, device.token_status = None, "none"
            case "client.contactLinked":
                device.contact_id = happening.content["contactId"]
                self._linked_to[device.contact_id].add(key)
            case "client.contactUnlinked":
                device.contact_id = None

    def _take_token(self, key: tuple[str, str], device: Device, token: str) -> None:
        for other_key, other in self.devices.items():
            if other_key[0] == key[0] and other_key != key and other.token == token:
                other.token, other.token_status = None, "superseded"
        device.token, device.token_status = token, "valid"


def field_by_field(happening: Happening) -> list[Happening]:
    """An event that sets several fields, as one event each: in one millisecond each field's greater value wins."""
    if happening.kind not in ("client.registered", "client.updated"):
        return [happening]
    single = [json.dumps({name: value}, sort_keys=True) for name, value in happening.content.items()]
    return [replace(happening, payload=payload) for payload in ["{}", *single]]


def token_digest(happening: Happening) -> str:
    """The token of an event by digest, as our tables know it; empty where there is none."""
    if happening.kind != "client.pushTokenSet":
        return ""
    content = happening.content
    text = content["pushToken"] if "pushToken" in content else content["webPush"]["endpoint"]
    return hashlib.sha256(text.encode()).hexdigest()
