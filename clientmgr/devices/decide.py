"""Decides what is to be written: what a batch says, put together with what the tenant's tables hold. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from clientmgr.devices.contact_history import Contacts, Link
from clientmgr.devices.fold import Claim, TenantChanges
from clientmgr.devices.state import (
    ContactFacet,
    DeviceKey,
    DeviceState,
    TokenVerdict,
    erase_until,
    judged,
    merge,
    supersede,
)


class Tombstone(NamedTuple):
    """Up to when a device is deleted: by its own deletion, and by that of the contact it belonged to."""

    own: int = 0
    by_contact: int = 0


NO_TOMBSTONE = Tombstone()


@dataclass(slots=True)
class Stored:
    """What the tables hold of everything that a batch touches. Devices, tokens and contacts are named by hashes."""

    devices: dict[bytes, DeviceState] = field(default_factory=dict)
    names: dict[bytes, DeviceKey] = field(default_factory=dict)
    """Of those that have a row."""
    tombstones: dict[bytes, Tombstone] = field(default_factory=dict)
    claims: dict[bytes, Claim] = field(default_factory=dict)
    verdicts: dict[bytes, TokenVerdict] = field(default_factory=dict)
    links: dict[bytes, set[Link]] = field(default_factory=dict)
    """Of the devices whose owner may change."""
    contacts: Contacts = field(default_factory=Contacts)
    """All contacts that these links are to, or come to by merges."""


@dataclass(slots=True)
class Writes:
    """What must change in the tables, deletions first. What is the same already is not in here."""

    devices: dict[bytes, tuple[DeviceKey, DeviceState]] = field(default_factory=dict)
    deleted_devices: list[bytes] = field(default_factory=list)
    tombstones: dict[bytes, Tombstone] = field(default_factory=dict)
    claims: dict[bytes, Claim] = field(default_factory=dict)
    links: dict[bytes, set[Link]] = field(default_factory=dict)


class Decider:
    """Decides for one tenant: at once about tokens and contacts, then about some devices at a time, as they are read.

    `stored` must hold claims, verdicts, links and contacts from the start, with the devices of those who have the
    claims; any other device when it is decided about. Merges are in `stored.contacts` already.
    """

    def __init__(self, changes: TenantChanges, stored: Stored) -> None:
        self._changes = changes
        self._stored = stored
        self.claims = {
            token: claim
            for token, claim in changes.claims.items()
            if (known := stored.claims.get(token)) is None or claim.order() > known.order()
        }
        self.former_holders = {
            former.device
            for token, claim in self.claims.items()
            if (former := stored.claims.get(token)) is not None and former.device != claim.device
            if former.device not in changes
        }
        """Devices that the changes do not name, and that lose a token by them."""

    def first(self) -> Writes:
        """What there is to write besides devices."""
        deleted = self._stored.contacts.deletions
        links = {
            device: {link._replace(contact_id=None) if link.contact in deleted else link for link in links}
            for device, links in self._changes.links.items()
        }
        return Writes(claims=self.claims, links=links)

    def about(self, devices: Iterable[bytes]) -> Writes:
        writes = Writes()
        for device in devices:
            self._decide(device, writes)
        return writes

    def _decide(self, device: bytes, writes: Writes) -> None:
        before = self._stored.devices.get(device)
        known = self._stored.tombstones.get(device, NO_TOMBSTONE)
        links = self._links(device)
        tombstone = Tombstone(
            max(known.own, self._changes.deletions.get(device, 0)),
            known.by_contact if links is None else self._stored.contacts.erased_until(links),
        )
        if tombstone != known:
            writes.tombstones[device] = tombstone
        erased = max(tombstone)
        lives_anew = erased > max(known) and before is not None and erase_until(before, erased) != before
        said = self._changes.devices.get(device)
        merged = merge(before, said) if before and said else before or said or DeviceState()
        if links is not None:
            merged = replace(merged, contact=self._owner(merged.contact, links))
        after = erase_until(merged, erased)
        if after is None:
            if before is not None:
                writes.deleted_devices.append(device)
            return
        if after.token.token is not None:
            after = self._with_token(device, after)
        if lives_anew:
            # A row of its own, with its own clocks: by those of its former life it might be an orphan already.
            writes.deleted_devices.append(device)
        if lives_anew or after != before:
            writes.devices[device] = self._name(device), after

    def _links(self, device: bytes) -> set[Link] | None:
        """All links of a device; None: its owner can't change by links, and nobody has asked for them."""
        stored, new = self._stored.links.get(device), self._changes.links.get(device)
        return stored | new if stored and new else stored or new

    def _owner(self, facet: ContactFacet, links: Iterable[Link]) -> ContactFacet:
        """Whose the device is: its newest link or unlink, as merges and deletions have it."""
        contacts = self._stored.contacts
        linked = max((link.version, contacts.contact_of(link) or 0) for link in links)
        if linked[0] < facet.version:
            return facet
        return ContactFacet(linked[0], linked[1] or None)

    def _with_token(self, device: bytes, state: DeviceState) -> DeviceState:
        token = state.token.hash
        claim = self.claims.get(token) or self._stored.claims.get(token)
        if claim is not None and claim.device != device:
            return supersede(state)
        verdict = self._stored.verdicts.get(token)
        return state if verdict is None else replace(state, token=judged(state.token, verdict))

    def _name(self, device: bytes) -> DeviceKey:
        return self._changes.names.get(device) or self._stored.names[device]
