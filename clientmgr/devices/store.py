"""Reads and writes tenants' device tables for the workers: a few statements for each, all in one pipeline.

The caller's transaction is used as it is. Whoever writes takes the tenant's write lock first, and keeps it to the end.
"""

import functools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import tuple_row

from clientmgr.base.arrays import bigint_array, bytea_array, text_array
from clientmgr.base.customer_ids import CustomerId, in_schema
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.base.portions import portions
from clientmgr.base.settings import Settings
from clientmgr.contracts.device_events import DecodedEvent
from clientmgr.contracts.verdicts import Verdict
from clientmgr.devices.contact_history import Contacts, Link, Merge
from clientmgr.devices.decide import Decider, Stored, Tombstone, Writes
from clientmgr.devices.fold import Claim, TenantChanges, TenantHashes, Touched, fold, touched_by
from clientmgr.devices.queries import device_queries
from clientmgr.devices.rows import (
    LAST_SEEN,
    TOMBSTONE,
    claim_columns,
    link_columns,
    merge_columns,
    named_columns,
    row_of,
    state_of,
    tombstone_columns,
)
from clientmgr.devices.state import DeviceKey, TokenVerdict, fields_changed
from clientmgr.devices.write_lock import WriteLock

DEVICES_AT_ONCE = 64
"""In one statement."""
CONTACT_DELETION = ("record_contact_deletions", "forget_links", "forget_merges", "delete_devices", "bury_with_contacts")
"""The statements of a contact's deletion, in their order."""
Rows = AsyncCursor[tuple[Any, ...]]

LINK, MERGE, DELETION = 1, 2, 3
"""What a row of `contact_histories` is."""


@functools.lru_cache(maxsize=4096)
def tenant_queries(customer_id: CustomerId) -> Mapping[str, bytes]:
    """The queries for one tenant, its schema written in, quoted and qualified."""
    queries = device_queries("devices")
    return {name: in_schema(sql, customer_id).encode() for name, sql in queries.items()}


@dataclass(frozen=True)
class DeviceStore:
    """What workers write to tenants' tables. It holds the key of the hashes and the lock, nothing else."""

    hashes: KeyedHashes
    write_lock: WriteLock = field(default_factory=WriteLock, compare=False)

    @classmethod
    def from_settings(cls, settings: Settings) -> "DeviceStore":
        return cls(KeyedHashes.from_settings(settings))

    async def apply_events(
        self, connection: AsyncConnection[Any], events: Mapping[CustomerId, Sequence[DecodedEvent]]
    ) -> None:
        """Write what a batch's events say of its tenants."""
        hashes = {customer_id: TenantHashes(self.hashes, customer_id) for customer_id in events}
        touched = {customer_id: touched_by(of_tenant, hashes[customer_id]) for customer_id, of_tenant in events.items()}
        async with connection.pipeline():
            await self.write_lock.take(connection, events)
            for customer_id, of_tenant in touched.items():
                if of_tenant.merges:
                    await _record_merges(connection, tenant_queries(customer_id), of_tenant)
            names = {customer_id: of_tenant.names for customer_id, of_tenant in hashes.items()}
            await _apply(connection, touched, names, lambda customer_id: fold(events[customer_id], hashes[customer_id]))

    async def changes_by(
        self, connection: AsyncConnection[Any], customer_id: CustomerId, events: Sequence[DecodedEvent]
    ) -> dict[DeviceKey, list[str]]:
        """What `apply_events` would change: by device, the fields. Nothing is written, but the write lock is taken."""
        hashes = TenantHashes(self.hashes, customer_id)
        touched = touched_by(events, hashes)
        changed: dict[DeviceKey, list[str]] = {}
        async with connection.pipeline():
            await self.write_lock.take(connection, [customer_id])
            questions = await _ask(connection, customer_id, touched, hashes.names)
            decider, stored = await _decider(fold(events, hashes), questions)
            for claim in decider.claims.values():
                if (key := hashes.names.get(claim.device)) is not None:
                    changed[key] = ["push_token"]
            async for writes in _decisions(decider, stored, questions):
                for device, (key, state) in writes.devices.items():
                    changed[key] = fields_changed(stored.devices.get(device), state)
                for device in writes.deleted_devices:
                    changed.setdefault(stored.names[device], ["deleted"])
        return changed

    async def apply_changes(
        self, connection: AsyncConnection[Any], customer_id: CustomerId, touched: Touched, changes: TenantChanges
    ) -> None:
        """Write what is known from elsewhere than events, by the same rules."""
        async with connection.pipeline():
            await self.write_lock.take(connection, [customer_id])
            await _apply(connection, {customer_id: touched}, {customer_id: changes.names}, lambda _: changes)

    async def lock(self, connection: AsyncConnection[Any], customer_id: CustomerId) -> None:
        """Be the tenant's only writer until the transaction ends."""
        await self.write_lock.take(connection, [customer_id])

    async def delete_contacts(
        self, connection: AsyncConnection[Any], contacts: Mapping[CustomerId, Mapping[int, Collection[int]]]
    ) -> dict[CustomerId, dict[int, int]]:
        """Delete tenants' contacts (id → versions of the deletions), with the devices that were theirs at that moment.

        Returns how many devices went with each contact, where some did.
        """
        deletions = {
            customer_id: _TenantDeletions.of(TenantHashes(self.hashes, customer_id), of_tenant)
            for customer_id, of_tenant in contacts.items()
        }
        async with connection.pipeline():
            await self.write_lock.take(connection, contacts)
            asked = {}
            for customer_id, of_tenant in deletions.items():
                query = tenant_queries(customer_id)["contacts_to_delete"]
                asked[customer_id] = await _send(connection, query, {"contacts": bytea_array(of_tenant.versions)})
            for customer_id, of_tenant in deletions.items():
                of_tenant.decide(await asked[customer_id].fetchall())
                columns = of_tenant.columns()
                for step in CONTACT_DELETION:
                    await connection.execute(tenant_queries(customer_id)[step], columns)
            # What has newer parts that stay, or only loses its contact.
            others = {
                customer_id: Touched(devices=of_tenant.others, linked=of_tenant.others)
                for customer_id, of_tenant in deletions.items()
                if of_tenant.others
            }
            if others:
                await _apply(connection, others, {}, lambda _: TenantChanges())
        return {customer_id: dict(of_tenant.counts) for customer_id, of_tenant in deletions.items()}

    async def apply_verdicts(
        self, connection: AsyncConnection[Any], verdicts: Mapping[CustomerId, Sequence[Verdict]]
    ) -> int:
        """Keep the verdicts, and set the tokens' status where they apply now; returns how many did."""
        async with connection.pipeline():
            await self.write_lock.take(connection, verdicts)
            sent = []
            for customer_id, of_tenant in verdicts.items():
                columns = {
                    "tokens": bytea_array(
                        self.hashes.token(customer_id, verdict.application_code, verdict.token_digest)
                        for verdict in of_tenant
                    ),
                    "statuses": text_array(verdict.status for verdict in of_tenant),
                    "versions": bigint_array(verdict.occurred_at for verdict in of_tenant),
                }
                sent.append(await _send(connection, tenant_queries(customer_id)["record_verdicts"], columns))
        return sum(updated.rowcount for updated in sent)


@dataclass(slots=True)
class _TenantDeletions:
    """Contacts of one tenant that are deleted, and what that does to the devices that ever were theirs."""

    versions: dict[bytes, Collection[int]]
    contact_ids: dict[bytes, int]
    taken: dict[bytes, int] = field(default_factory=dict)
    """Devices that go, each with the moment up to which it is erased."""
    others: set[bytes] = field(default_factory=set)
    """Devices that stay, and have to be decided about."""
    counts: Counter[int] = field(default_factory=Counter)
    """By contact: devices that went."""

    @classmethod
    def of(cls, hashes: TenantHashes, contacts: Mapping[int, Collection[int]]) -> "_TenantDeletions":
        by_hash = {hashes.contact(contact_id): contact_id for contact_id in contacts}
        return cls({contact: contacts[contact_id] for contact, contact_id in by_hash.items()}, by_hash)

    def columns(self) -> dict[str, str]:
        flat = [(contact, version) for contact, versions in self.versions.items() for version in versions]
        return {
            "contacts": bytea_array(contact for contact, _ in flat),
            "versions": bigint_array(version for _, version in flat),
            "devices": bytea_array(self.taken),
            "device_versions": bigint_array(self.taken.values()),
        }

    def decide(self, rows: Iterable[Sequence[Any]]) -> None:
        """Look at the answer of `contacts_to_delete`, device by device."""
        contacts = Contacts()
        links: dict[bytes, list[Link]] = {}
        known: dict[bytes, tuple[int | None, int | None]] = {}
        for kind, key, version, contact, last_seen, owner in rows:
            if kind == LINK:
                links.setdefault(key, []).append(Link(version, contact))
                known[key] = last_seen, owner
            else:
                contacts.add({key: [Merge(version, contact, None)]})
        deleted = set(self.contact_ids.values())
        for device, of_device in links.items():
            last_seen, owner = known[device]
            erased = contacts.erased_by(of_device, self.versions)
            until = max(erased.values(), default=0)
            if erased and (last_seen is None or last_seen <= until):
                self.taken[device] = until
                if last_seen is not None:
                    for contact in erased:
                        self.counts[self.contact_ids[contact]] += 1
            elif erased or owner in deleted:
                self.others.add(device)


async def _record_merges(connection: AsyncConnection[Any], queries: Mapping[str, bytes], touched: Touched) -> None:
    """Record merges, and add the devices that they may give to others to those that the batch touches."""
    await connection.execute(queries["record_merges"], merge_columns(touched.merges))
    found = await _send(connection, queries["devices_ever_of"], {"contacts": bytea_array(touched.merges)})
    devices = {row[0] for row in await found.fetchall()}
    touched.devices.update(devices)
    touched.linked.update(devices)


async def _apply(
    connection: AsyncConnection[Any],
    touched: Mapping[CustomerId, Touched],
    names: Mapping[CustomerId, Mapping[bytes, DeviceKey]],
    changes_of: Callable[[CustomerId], TenantChanges],
) -> None:
    """Ask for everything at once. While the server looks or writes, what comes next is seen to here."""
    asked = {
        customer_id: await _ask(connection, customer_id, of_tenant, names.get(customer_id, {}))
        for customer_id, of_tenant in touched.items()
    }
    for customer_id, questions in asked.items():
        await _merge(connection, tenant_queries(customer_id), changes_of(customer_id), questions)


@dataclass(frozen=True, slots=True)
class Questions:
    """What was asked of one tenant. Whoever fetches the first answer has waited for all."""

    devices: Sequence[tuple[Sequence[bytes], Rows]]
    claims: Rows | None
    histories: Rows | None


async def _ask(
    connection: AsyncConnection[Any], customer_id: CustomerId, touched: Touched, names: Mapping[bytes, DeviceKey]
) -> Questions:
    queries = tenant_queries(customer_id)
    claims = None
    if touched.tokens:
        claims = await _send(connection, queries["claims"], {"tokens": bytea_array(touched.tokens)})
    histories = None
    if touched.linked:
        wanted = {"devices": bytea_array(touched.linked), "contacts": bytea_array(touched.contacts)}
        histories = await _send(connection, queries["contact_histories"], wanted)
    devices = []
    for some in portions([device for device in touched.devices if device in names], DEVICES_AT_ONCE):
        devices.append((some, await _send(connection, queries["devices"], named_columns(some, names))))
    for some in portions([device for device in touched.devices if device not in names], DEVICES_AT_ONCE):
        devices.append((some, await _send(connection, queries["devices_by_hash"], {"devices": bytea_array(some)})))
    return Questions(devices, claims, histories)


async def _merge(
    connection: AsyncConnection[Any], queries: Mapping[str, bytes], changes: TenantChanges, questions: Questions
) -> None:
    """Bring one tenant's tables to what the changes and the answers say together."""
    decider, stored = await _decider(changes, questions)
    await _write(connection, queries, decider.first())
    async for writes in _decisions(decider, stored, questions):
        await _write(connection, queries, writes)


async def _decider(changes: TenantChanges, questions: Questions) -> tuple[Decider, Stored]:
    """With the answers about tokens and contacts; those about devices are still to be read."""
    stored = Stored()
    for row in () if questions.claims is None else await questions.claims.fetchall():
        _note_claim(row, stored)
    for row in () if questions.histories is None else await questions.histories.fetchall():
        _note_history(row, stored)
    return Decider(changes, stored), stored


async def _decisions(decider: Decider, stored: Stored, questions: Questions) -> AsyncIterator[Writes]:
    """What is to be written of devices, some at a time, as the answers come."""
    for devices, rows in questions.devices:
        for row in await rows.fetchall():
            own, by_contact = row[TOMBSTONE]
            if own is not None:
                stored.tombstones[row[0]] = Tombstone(own, by_contact)
            _note_device(row, stored)
        yield decider.about(devices)
    yield decider.about(decider.former_holders)


def _note_device(row: Sequence[Any], stored: Stored) -> None:
    if row[LAST_SEEN] is not None:
        stored.devices[row[0]] = state_of(row)
        stored.names[row[0]] = DeviceKey(row[1], row[2])


def _note_claim(row: Sequence[Any], stored: Stored) -> None:
    token, claimed_version, verdict_version, status = row[-4:]
    if claimed_version is not None:
        stored.claims[token] = Claim(claimed_version, row[0])
        _note_device(row, stored)
    if verdict_version is not None:
        stored.verdicts[token] = TokenVerdict(verdict_version, status)


def _note_history(row: Sequence[Any], stored: Stored) -> None:
    kind, key, version, contact, contact_id = row
    if kind == LINK:
        stored.links.setdefault(key, set()).add(Link(version, contact, contact_id))
    elif kind == MERGE:
        stored.contacts.add({key: [Merge(version, contact, contact_id)]})
    else:
        stored.contacts.deletions.setdefault(key, set()).add(version)


async def _write(connection: AsyncConnection[Any], queries: Mapping[str, bytes], writes: Writes) -> None:
    if writes.deleted_devices:
        await connection.execute(queries["delete_devices"], {"devices": bytea_array(writes.deleted_devices)})
    if writes.tombstones:
        await connection.execute(queries["upsert_device_tombstones"], tombstone_columns(writes.tombstones))
    if writes.claims:
        await connection.execute(queries["upsert_claims"], claim_columns(writes.claims))
    if writes.links:
        await connection.execute(queries["add_links"], link_columns(writes.links))
    if writes.devices:
        rows = [row_of(device, key, state) for device, (key, state) in writes.devices.items()]
        await connection.execute(queries["upsert_devices"], {"rows": msgspec.json.encode(rows).decode()})


async def _send(connection: AsyncConnection[Any], query: bytes, parameters: Mapping[str, Any]) -> Rows:
    cursor: Rows = connection.cursor(row_factory=tuple_row)
    await cursor.execute(query, parameters)
    return cursor
