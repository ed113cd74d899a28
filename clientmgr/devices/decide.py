"""Decides what is to be written: what a batch says, put together with what the tenant's tables hold. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from clientmgr.devices.fold import Claim, TenantChanges
from clientmgr.devices.state import DeviceKey, DeviceState, TokenKey, erase_until, merge, supersede


@dataclass(slots=True)
class Stored:
    """What the tables hold of everything that a batch touches."""

    devices: dict[DeviceKey, DeviceState] = field(default_factory=dict)
    device_tombstones: dict[DeviceKey, int] = field(default_factory=dict)
    contact_tombstones: dict[int, int] = field(default_factory=dict)
    claims: dict[TokenKey, Claim] = field(default_factory=dict)


@dataclass(slots=True)
class Writes:
    """What must change in the tables, deletions first. What is the same already is not in here."""

    devices: dict[DeviceKey, DeviceState] = field(default_factory=dict)
    deleted_devices: list[DeviceKey] = field(default_factory=list)
    device_tombstones: dict[DeviceKey, int] = field(default_factory=dict)
    claims: dict[TokenKey, Claim] = field(default_factory=dict)
    links: dict[tuple[int, DeviceKey], int] = field(default_factory=dict)


class Decider:
    """Decides for one tenant: at once about tokens and contacts, then about some devices at a time, as they are read.

    `stored` must hold the claims and contacts from the start, with the devices of those who have the claims; any other
    device when it is decided about.
    """

    def __init__(self, changes: TenantChanges, stored: Stored) -> None:
        self._changes = changes
        self._stored = stored
        self._deletions = _deletions(changes, stored)
        self.claims = {
            token_key: claim
            for token_key, claim in changes.claims.items()
            if (known := stored.claims.get(token_key)) is None or claim.order() > known.order()
        }
        self.former_holders = {
            key
            for token_key, claim in self.claims.items()
            if (former := stored.claims.get(token_key)) is not None and former.client_id != claim.client_id
            if (key := DeviceKey(token_key.application_code, former.client_id)) not in changes
        }
        """Devices that the changes do not name, and that lose a token by them."""

    def first(self) -> Writes:
        """What there is to write besides devices."""
        return Writes(claims=self.claims, links=dict(self._changes.links))

    def about(self, keys: Iterable[DeviceKey]) -> Writes:
        writes = Writes()
        for key in keys:
            self._decide(key, writes)
        return writes

    def _decide(self, key: DeviceKey, writes: Writes) -> None:
        before = self._stored.devices.get(key)
        tombstone = self._stored.device_tombstones.get(key, 0)
        deleted_version = self._deletions.get(key, 0)
        lives_anew = False
        if deleted_version > tombstone:
            writes.device_tombstones[key] = tombstone = deleted_version
            lives_anew = before is not None and erase_until(before, tombstone) != before
        said = self._changes.devices.get(key)
        merged = merge(before, said) if before and said else before or said or DeviceState()
        after = erase_until(merged, tombstone)
        if after is None:
            if before is not None:
                writes.deleted_devices.append(key)
            return
        if after.token.token is not None:
            token_key = TokenKey(key.application_code, after.token.digest)
            claim = self.claims.get(token_key) or self._stored.claims.get(token_key)
            if claim is not None and claim.client_id != key.client_id:
                after = supersede(after)
        if lives_anew:
            # A row of its own, with its own clocks: by those of its former life it might be an orphan already.
            writes.deleted_devices.append(key)
        if lives_anew or after != before:
            writes.devices[key] = after


def forget_contacts(contacts: Mapping[int, int], links: Mapping[tuple[int, DeviceKey], int]) -> TenantChanges:
    """The deletion of contacts as deletions of the devices that were linked to them.

    Every device that a contact was ever linked to goes, up to the moment of the deletion, also where another contact
    has it by then: a rule that spared those could not be kept, because a link that would have spared a device may
    arrive after its data is gone. Its next events bring such a device back.
    """
    changes = TenantChanges()
    for (contact_id, key), linked in links.items():
        changes.deletions[key] = max(changes.deletions.get(key, 0), linked, contacts[contact_id])
    return changes


def _deletions(changes: TenantChanges, stored: Stored) -> dict[DeviceKey, int]:
    """Up to which version each device is deleted: by an event, or by the deletion of a contact it was linked to."""
    deletions = dict(changes.deletions)
    for (contact_id, key), linked in changes.links.items():
        contact_deleted = stored.contact_tombstones.get(contact_id)
        if contact_deleted is not None:
            deletions[key] = max(deletions.get(key, 0), linked, contact_deleted)
    return deletions
