"""Folds a batch of one tenant's events, so that the database sees each device, token and contact once. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET, Struct

from clientmgr.contracts.device_events import ContactPayload, DecodedEvent, InfoPayload, PushTokenPayload, WebPush
from clientmgr.contracts.device_fields import INFO_FIELDS
from clientmgr.contracts.push_tokens import token_digest
from clientmgr.devices.state import (
    NO_DIGEST,
    ContactFacet,
    DeviceKey,
    DeviceState,
    Info,
    PushToken,
    TokenFacet,
    TokenKey,
    merge,
)


class Claim(Struct, frozen=True, gc=False):
    """Who claimed a token last. Between two claims of one millisecond the greater client id has it."""

    version: int
    client_id: str

    def order(self) -> tuple[int, str]:
        return self.version, self.client_id


@dataclass(slots=True)
class TenantChanges:
    """What some events of one tenant say, taken together."""

    devices: dict[DeviceKey, DeviceState] = field(default_factory=dict)
    deletions: dict[DeviceKey, int] = field(default_factory=dict)
    claims: dict[TokenKey, Claim] = field(default_factory=dict)
    links: dict[tuple[int, DeviceKey], int] = field(default_factory=dict)
    """(contact, device) → when it was last linked; a superseded link counts for a deletion of the contact too."""

    def keys(self) -> set[DeviceKey]:
        return self.devices.keys() | self.deletions.keys()

    def touched(self) -> "Touched":
        return Touched(self.keys(), self.claims, {contact_id for contact_id, _ in self.links})

    def __contains__(self, key: DeviceKey) -> bool:
        return key in self.devices or key in self.deletions


@dataclass(frozen=True, slots=True)
class Touched:
    """What must be known before changes can be decided about."""

    devices: Collection[DeviceKey]
    tokens: Collection[TokenKey]
    contacts: Collection[int]


def touched_by(events: Iterable[DecodedEvent]) -> Touched:
    """A glance at the events, so that the database can look while we fold them."""
    devices, tokens, contacts = set(), set(), set()
    for decoded in events:
        application_code = decoded.event.application_code
        devices.add(DeviceKey(application_code, decoded.event.client_id))
        match decoded.payload:
            case PushTokenPayload() as payload:
                tokens.add(TokenKey(application_code, _digest(payload)))
            case ContactPayload(contact_id=contact_id):
                contacts.add(contact_id)
    return Touched(devices, tokens, contacts)


def fold(events: Iterable[DecodedEvent]) -> TenantChanges:
    """All events together; their order does not matter."""
    changes = TenantChanges()
    for decoded in events:
        event = decoded.event
        key = DeviceKey(event.application_code, event.client_id)
        version = event.occurred_at
        if event.event_type == "client.deleted":
            changes.deletions[key] = max(version, changes.deletions.get(key, 0))
            continue
        state = _state_after(decoded, changes, key)
        known = changes.devices.get(key)
        changes.devices[key] = state if known is None else merge(known, state)
    return changes


def _state_after(decoded: DecodedEvent, changes: TenantChanges, key: DeviceKey) -> DeviceState:
    """What one event says of its device; what it says of tokens and contacts is noted in `changes`."""
    version = decoded.event.occurred_at
    state = DeviceState(last_seen=version)
    match decoded.payload:
        case InfoPayload() as info:
            state.info = {
                name: Info(version, value) for name in INFO_FIELDS if (value := getattr(info, name)) is not UNSET
            }
        case PushTokenPayload() as payload:
            token, digest = _push_token(payload)
            state.token = TokenFacet(version, digest, token, status="valid")
            _claim(changes, TokenKey(key.application_code, digest), Claim(version, key.client_id))
        case ContactPayload(contact_id=contact_id):
            state.contact = ContactFacet(version, contact_id)
            link = (contact_id, key)
            changes.links[link] = max(version, changes.links.get(link, 0))
        case None if decoded.event.event_type == "client.pushTokenCleared":
            state.token = TokenFacet(version, NO_DIGEST)
        case None:
            state.contact = ContactFacet(version, None)
    return state


def _claim(changes: TenantChanges, key: TokenKey, claim: Claim) -> None:
    # A claim counts even where the event that makes it is otherwise stale.
    known = changes.claims.get(key)
    if known is None or claim.order() > known.order():
        changes.claims[key] = claim


def _push_token(payload: PushTokenPayload) -> tuple[PushToken, bytes]:
    """The token, and the digest that it is known by."""
    if isinstance(payload.web_push, WebPush):
        token = PushToken(payload.kind, web_push=msgspec.to_builtins(payload.web_push))
    else:
        token = PushToken(payload.kind, token=str(payload.push_token))
    return token, _digest(payload)


def _digest(payload: PushTokenPayload) -> bytes:
    web_push = payload.web_push
    return token_digest(web_push.endpoint if isinstance(web_push, WebPush) else str(payload.push_token))
