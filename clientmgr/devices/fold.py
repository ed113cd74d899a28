"""Folds a batch of one tenant's events, so that the database sees each device, token and contact once. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import astuple

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.contracts.device_events import (
    ContactMergePayload,
    ContactPayload,
    DecodedEvent,
    InfoPayload,
    PushTokenPayload,
    WebPush,
)
from clientmgr.contracts.push_tokens import token_digest
from clientmgr.devices.contact_history import NO_CONTACT, Link, Merge
from clientmgr.devices.state import (
    NO_HASH,
    ContactFacet,
    DeviceKey,
    DeviceState,
    PushToken,
    TokenFacet,
    later,
    merge_tokens,
    set_info,
)

_INFO_NAMES = InfoPayload.__struct_fields__


class Claim(Struct, frozen=True, gc=False):
    """Who claimed a token last. Between two claims of one millisecond the greater hash has it."""

    version: int
    device: bytes

    def order(self) -> tuple[int, bytes]:
        return self.version, self.device


class TenantHashes:
    """The hashes of one tenant, each made once for a batch."""

    def __init__(self, hashes: KeyedHashes, customer_id: CustomerId) -> None:
        self._hashes = hashes
        self._customer_id = customer_id
        self.names: dict[bytes, DeviceKey] = {}
        """The devices that were asked for."""
        self._devices: dict[tuple[str, str], bytes] = {}
        self._contacts: dict[int, bytes] = {}
        self._tokens: dict[tuple[str, str], bytes] = {}

    def device(self, application_code: str, client_id: str) -> bytes:
        key = (application_code, client_id)
        if (known := self._devices.get(key)) is not None:
            return known
        made = self._devices[key] = self._hashes.device(self._customer_id, application_code, client_id)
        self.names[made] = DeviceKey(application_code, client_id)
        return made

    def contact(self, contact_id: int) -> bytes:
        if (known := self._contacts.get(contact_id)) is not None:
            return known
        made = self._contacts[contact_id] = self._hashes.contact(self._customer_id, contact_id)
        return made

    def contact_named(self, contact_id: int | UnsetType, contact_hash: str | UnsetType) -> tuple[bytes, int | None]:
        """The hash and the id of an event's contact. Of one that is deleted the event may have the hash alone."""
        if isinstance(contact_id, int):
            return self.contact(contact_id), contact_id
        return bytes.fromhex(str(contact_hash)), None

    def token(self, application_code: str, payload: PushTokenPayload) -> bytes:
        web_push = payload.web_push
        text = web_push.endpoint if isinstance(web_push, WebPush) else str(payload.push_token)
        key = (application_code, text)
        if (known := self._tokens.get(key)) is not None:
            return known
        made = self._tokens[key] = self._hashes.token(self._customer_id, application_code, token_digest(text))
        return made


@dataclass(slots=True)
class TenantChanges:
    """What some events of one tenant say, taken together. Devices, tokens and contacts are named by their hashes."""

    names: dict[bytes, DeviceKey] = field(default_factory=dict)
    """How a device is called that may have no row yet."""
    devices: dict[bytes, DeviceState] = field(default_factory=dict)
    deletions: dict[bytes, int] = field(default_factory=dict)
    claims: dict[bytes, Claim] = field(default_factory=dict)
    links: dict[bytes, set[Link]] = field(default_factory=dict)
    """By device."""

    def __contains__(self, device: bytes) -> bool:
        return device in self.devices or device in self.deletions


@dataclass(frozen=True, slots=True)
class Touched:
    """What must be known before changes can be decided about, by hash."""

    devices: set[bytes] = field(default_factory=set)
    tokens: set[bytes] = field(default_factory=set)
    linked: set[bytes] = field(default_factory=set)
    """Devices whose links must be known: whose they are may change."""
    contacts: set[bytes] = field(default_factory=set)
    merges: dict[bytes, set[Merge]] = field(default_factory=dict)
    """By the contact whose devices become another's. They are recorded before anything is asked."""


def touched_by(events: Iterable[DecodedEvent], hashes: TenantHashes) -> Touched:
    """A glance at the events, so that the database can look while we fold them."""
    touched = Touched()
    for decoded in events:
        payload = decoded.payload
        if isinstance(payload, ContactMergePayload):
            old, _ = hashes.contact_named(payload.from_contact_id, payload.from_contact_hash)
            into = hashes.contact_named(payload.into_contact_id, payload.into_contact_hash)
            touched.merges.setdefault(old, set()).add(Merge(decoded.event.occurred_at, *into))
            continue
        event = decoded.event
        device = hashes.device(event.application_code, event.client_id)
        touched.devices.add(device)
        match payload:
            case PushTokenPayload():
                touched.tokens.add(hashes.token(event.application_code, payload))
            case ContactPayload():
                touched.linked.add(device)
                touched.contacts.add(hashes.contact_named(payload.contact_id, payload.contact_hash)[0])
            case None if event.event_type == "client.contactUnlinked":
                touched.linked.add(device)
    return touched


def fold(events: Iterable[DecodedEvent], hashes: TenantHashes) -> TenantChanges:
    """What all events together say of devices; their order does not matter.

    A device's events are put into one state, in place: it is `merge` of what each says, and tests hold it to that.
    """
    changes = TenantChanges(names=hashes.names)
    devices = changes.devices
    for decoded in events:
        event, payload = decoded.event, decoded.payload
        version = event.occurred_at
        if isinstance(payload, ContactMergePayload):
            continue
        device = hashes.device(event.application_code, event.client_id)
        if payload is None and event.event_type == "client.deleted":
            changes.deletions[device] = max(version, changes.deletions.get(device, 0))
            continue
        state = devices.get(device)
        if state is None:
            state = devices[device] = DeviceState(last_seen=version)
        elif state.last_seen < version:
            state.last_seen = version
        if isinstance(payload, InfoPayload):
            info = state.info
            for name, value in zip(_INFO_NAMES, astuple(payload), strict=True):
                if value is not UNSET:
                    set_info(info, name, version, value)
        elif isinstance(payload, PushTokenPayload):
            token = hashes.token(event.application_code, payload)
            state.token = merge_tokens(state.token, TokenFacet(version, token, push_token_of(payload), status="valid"))
            claim_token(changes, token, Claim(version, device))
        elif payload is None and event.event_type == "client.pushTokenCleared":
            state.token = merge_tokens(state.token, TokenFacet(version, NO_HASH))
        else:
            link = _link(version, payload, hashes)
            state.contact = later(state.contact, ContactFacet(version, link.contact_id))
            changes.links.setdefault(device, set()).add(link)
    return changes


def _link(version: int, payload: ContactPayload | None, hashes: TenantHashes) -> Link:
    if payload is None:
        return Link(version, NO_CONTACT)
    return Link(version, *hashes.contact_named(payload.contact_id, payload.contact_hash))


def claim_token(changes: TenantChanges, token_hash: bytes, claim: Claim) -> None:
    """A claim counts even where the event that makes it is otherwise stale."""
    known = changes.claims.get(token_hash)
    if known is None or claim.order() > known.order():
        changes.claims[token_hash] = claim


def push_token_of(payload: PushTokenPayload) -> PushToken:
    if isinstance(payload.web_push, WebPush):
        return PushToken(payload.kind, web_push=msgspec.to_builtins(payload.web_push))
    return PushToken(payload.kind, token=str(payload.push_token))
