"""Histories of events for a few devices, tokens and contacts, and the simple model of what they must leave behind."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.contracts import topics
from clientmgr.contracts.device_events import DecodedEvent, decode_event
from clientmgr.contracts.push_tokens import token_digest
from clientmgr.contracts.verdicts import Verdict, decode_verdict
from tests.keys import TEST_KEY

CUSTOMER = CustomerId(7)
HASHES = KeyedHashes(TEST_KEY.encode())
"""With the key of the tests' settings."""
APPLICATIONS = ("A", "B")
CLIENTS = ("c1", "c2", "c3")
TOKENS = ("t1", "t2")
CONTACTS = (41, 42, 43)
LATEST = 12


@dataclass(frozen=True)
class Happening:
    """One thing that happened: an event of the writer's topic, the deletion of a contact, a verdict on a token."""

    kind: str
    at: int
    application_code: str = ""
    client_id: str = ""
    payload: str = "{}"

    @property
    def topic(self) -> str:
        return {
            "contact.deleted": topics.CONTACT_DELETION,
            "token.verdict": topics.WEB_PUSH_TOKEN_STATUS if "endpoint" in self.content else topics.PUSH_TOKEN_STATUS,
        }.get(self.kind, topics.WRITER)

    def message(self, customer: int = CUSTOMER) -> dict[str, Any]:
        """As it lies in its topic."""
        head = {"eventId": "e", "customerId": customer}
        if self.kind == "contact.deleted":
            return {**head, "deletedAt": self.at, **self.content}
        device = {"applicationCode": self.application_code, "clientId": self.client_id} if self.client_id else {}
        if self.kind == "token.verdict":
            return {**head, **device, "occurredAt": self.at, **self.content}
        return {**head, **device, "eventType": self.kind, "occurredAt": self.at, "payload": self.content}

    def verdict(self) -> Verdict:
        return decode_verdict(self.topic, json.dumps(self.message()).encode())[1]

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
_verdict = st.builds(
    lambda token, status: {**token, "status": status},
    st.sampled_from([*({"pushToken": token} for token in TOKENS), {"endpoint": "https://push/1"}]),
    st.sampled_from(["valid", "invalid"]),
)
_contact = st.sampled_from(CONTACTS).map(lambda contact: {"contactId": contact})
_nothing: st.SearchStrategy[dict[str, Any]] = st.just({})


def contact_merge(at: int, pair: tuple[int, int]) -> Happening:
    payload = json.dumps({"fromContactId": pair[0], "intoContactId": pair[1]})
    return Happening("client.contactMerged", at, payload=payload)


_pairs = st.sampled_from([(one, other) for one in CONTACTS for other in CONTACTS if one != other])

happenings = st.one_of(
    _event("client.registered", _info),
    _event("client.updated", _info),
    _event("client.pushTokenSet", _token),
    _event("client.pushTokenSet", _token),
    _event("client.pushTokenCleared", _nothing),
    _event("client.contactLinked", _contact),
    _event("client.contactLinked", _contact),
    _event("client.contactUnlinked", _nothing),
    _event("client.deleted", _nothing),
    _event("token.verdict", _verdict),
    _event("token.verdict", _verdict),
    st.builds(contact_merge, st.integers(1, LATEST), _pairs),
    st.builds(contact_deletion, st.integers(1, LATEST), st.sampled_from(CONTACTS)),
)
# Long enough that most histories have something to disagree about: a verdict on a token that is set, a merge of links.
histories = st.lists(happenings, min_size=6, max_size=20)


def without_late_links(arriving: list[Happening]) -> list[Happening]:
    """The same, but no deletion of a contact arrives before a link or merge that precedes it.

    What arrives else depends on the order, by the one exception to the rule: clientmgr/devices/contact_history.py.
    """
    told = ("client.contactLinked", "client.contactMerged")
    ordered: list[Happening] = []
    for place, happening in enumerate(arriving):
        if happening.kind == "contact.deleted":
            late = [one for one in arriving[place:] if one.kind in told and one.at <= happening.at]
            ordered += [one for one in late if one not in ordered]
        ordered.append(happening)
    return ordered


@dataclass
class Device:
    """A device as the model sees it: plain values, no versions."""

    info: dict[str, Any] = field(default_factory=dict)
    token: str | None = None
    token_status: str = "none"
    contact_id: int | None = None
    last_seen: int = 0


class Model:
    """What a history adds up to, from the rules alone: nothing here knows batches, tables or an order of arrival."""

    def __init__(self, history: list[Happening], customer: int = CUSTOMER) -> None:
        self._customer = customer
        self._history = list(dict.fromkeys(history))
        self._merges = self._of_kind("client.contactMerged")
        self._deletions = self._of_kind("contact.deleted")
        self._deleted = {one.content["contactId"] for one in self._deletions}
        keys = {(one.application_code, one.client_id) for one in self._history if one.client_id}
        self._claims = self._last_claims()
        made = {key: self._device(key) for key in sorted(keys)}
        self.devices = {key: device for key, device in made.items() if device is not None}

    def _of_kind(self, *kinds: str) -> list[Happening]:
        return [one for one in self._history if one.kind in kinds]

    def _device(self, key: tuple[str, str]) -> Device | None:
        told = [
            one for one in self._history if (one.application_code, one.client_id) == key and one.kind != "token.verdict"
        ]
        erased = self._erased_until([one for one in told if one.kind == "client.contactLinked"])
        erased = max([erased, *(one.at for one in told if one.kind == "client.deleted")])
        left = [one for one in told if one.at > erased and one.kind != "client.deleted"]
        if not left:
            return None
        device = Device(last_seen=max(one.at for one in left))
        for part in sorted((part for one in left for part in field_by_field(one)), key=_by_time_and_value):
            device.info |= part.content if part.kind in ("client.registered", "client.updated") else {}
        self._set_token(device, key, left)
        owners = [
            (one.at, (self._owner(one, LATEST) if one.kind == "client.contactLinked" else None) or 0)
            for one in left
            if one.kind in ("client.contactLinked", "client.contactUnlinked")
        ]
        device.contact_id = max(owners, default=(0, 0))[1] or None
        if device.contact_id in self._deleted:
            # Deleted contacts come after all others in their millisecond.
            newest = max(owners)[0]
            alive = [owner for at, owner in owners if at == newest and owner not in self._deleted]
            device.contact_id = max(alive, default=0) or None
        return device

    def _erased_until(self, links: list[Happening]) -> int:
        """The last deletion of a contact at which the newest link was to that contact."""
        erased = 0
        for deletion in self._deletions:
            until_then = [link for link in links if link.at <= deletion.at]
            newest = max((link.at for link in until_then), default=0)
            owners = {self._owner(link, deletion.at) for link in until_then if link.at == newest}
            if deletion.content["contactId"] in owners:
                erased = max(erased, deletion.at)
        return erased

    def _owner(self, link: Happening, moment: int) -> int:
        """Whose the link was at the moment: merges pass it on, one after the other."""
        owner, since = link.content["contactId"], link.at
        left = [merge for merge in self._merges if merge.at <= moment]
        while True:
            ahead = [one for one in left if one.content["fromContactId"] == owner and one.at >= since]
            if not ahead:
                return int(owner)
            first = min(ahead, key=lambda one: (one.at, _inverted(HASHES.contact(self._customer, _into(one)))))
            left.remove(first)
            owner, since = _into(first), first.at

    def _set_token(self, device: Device, key: tuple[str, str], left: list[Happening]) -> None:
        facets = [(one.at, token_of(one, self._customer)) for one in left if one.kind.startswith("client.pushToken")]
        at, token = max(facets, default=(0, b""))
        if not token:
            return
        if self._claims[token][1] != HASHES.device(self._customer, *key):
            device.token_status = "superseded"
            return
        device.token, device.token_status = token.hex(), "valid"
        verdicts = [
            one for one in self._of_kind("token.verdict") if token_of(one, self._customer) == token and one.at >= at
        ]
        if verdicts:
            newest = max(one.at for one in verdicts)
            said = {one.content["status"] for one in verdicts if one.at == newest}
            device.token_status = "invalid" if "invalid" in said else "valid"

    def _last_claims(self) -> dict[bytes, tuple[int, bytes]]:
        claims: dict[bytes, tuple[int, bytes]] = {}
        for one in self._of_kind("client.pushTokenSet"):
            claim = (one.at, HASHES.device(self._customer, one.application_code, one.client_id))
            token = token_of(one, self._customer)
            claims[token] = max(claim, claims.get(token, (0, b"")))
        return claims


def _into(merge: Happening) -> int:
    return int(merge.content["intoContactId"])


def _inverted(data: bytes) -> bytes:
    """So that the greatest comes first."""
    return bytes(255 - byte for byte in data)


def _by_time_and_value(happening: Happening) -> tuple[int, str]:
    return happening.at, happening.payload.strip("{}")  # nothing is the least value


def field_by_field(happening: Happening) -> list[Happening]:
    """An event that sets several fields, as one event each: in one millisecond each field's greater value wins."""
    if happening.kind not in ("client.registered", "client.updated"):
        return [happening]
    single = [json.dumps({name: value}, sort_keys=True) for name, value in happening.content.items()]
    return [replace(happening, payload=payload) for payload in ["{}", *single]]


def token_of(happening: Happening, customer: int = CUSTOMER) -> bytes:
    """The token of an event as our tables know it; empty where there is none."""
    content = happening.content
    text = content.get("pushToken") or content.get("endpoint") or content.get("webPush", {}).get("endpoint")
    return HASHES.token(customer, happening.application_code, token_digest(text)) if text else b""
