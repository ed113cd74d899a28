"""Decides what is to be written: what a batch says, put together with what the tenant's tables hold. Pure."""

from collections.abc import Mapping
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
    """What must change in the tables. What is the same already is not in here."""

    devices: dict[DeviceKey, DeviceState] = field(default_factory=dict)
    deleted_devices: list[DeviceKey] = field(default_factory=list)
    device_tombstones: dict[DeviceKey, int] = field(default_factory=dict)
    claims: dict[TokenKey, Claim] = field(default_factory=dict)
    links: dict[tuple[int, DeviceKey], int] = field(default_factory=dict)


def decide(changes: TenantChanges, stored: Stored) -> Writes:
    """Merge both, apply deletions and token claims, and keep what differs from the tables."""
    writes = Writes()
    writes.links = dict(changes.links)
    deletions = _deletions(changes, stored)
    for token_key, claim in changes.claims.items():
        known = stored.claims.get(token_key)
        if known is None or claim.order() > known.order():
            writes.claims[token_key] = claim
    for key in changes.keys() | deletions.keys():
        _decide_device(key, changes, stored, deletions.get(key, 0), writes)
    for token_key, claim in writes.claims.items():
        _take_from_former_holder(token_key, claim, stored, writes)
    return writes


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


def _decide_device(
    key: DeviceKey, changes: TenantChanges, stored: Stored, deleted_version: int, writes: Writes
) -> None:
    before = stored.devices.get(key)
    tombstone = stored.device_tombstones.get(key, 0)
    if deleted_version > tombstone:
        writes.device_tombstones[key] = tombstone = deleted_version
    said = changes.devices.get(key)
    merged = merge(before, said) if before and said else before or said or DeviceState()
    after = erase_until(merged, tombstone)
    if after is None:
        if before is not None:
            writes.deleted_devices.append(key)
        return
    if after.token.token is not None:
        token_key = TokenKey(key.application_code, after.token.digest)
        claim = writes.claims.get(token_key) or stored.claims.get(token_key)
        if claim is not None and claim.client_id != key.client_id:
            after = supersede(after)
    if after != before:
        writes.devices[key] = after


def _take_from_former_holder(token_key: TokenKey, claim: Claim, stored: Stored, writes: Writes) -> None:
    former = stored.claims.get(token_key)
    if former is None or former.client_id == claim.client_id:
        return
    key = DeviceKey(token_key.application_code, former.client_id)
    holder = writes.devices.get(key) or stored.devices.get(key)
    if holder is None or key in writes.deleted_devices:
        return
    if holder.token.token is not None and holder.token.digest == token_key.digest:
        writes.devices[key] = supersede(holder)
