"""Reads and writes tenants' device tables for the workers: a few statements for each, all in one pipeline.

The caller's transaction is used as it is. Whoever writes takes the tenant's write lock first, and keeps it to the end.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import tuple_row

from clientmgr.base.arrays import bigint_array, bytea_array, text_array
from clientmgr.base.customer_ids import CustomerId, in_schema
from clientmgr.base.portions import portions
from clientmgr.contracts.device_events import DecodedEvent
from clientmgr.contracts.verdicts import Verdict
from clientmgr.devices.decide import Decider, Stored, Writes, forget_contacts
from clientmgr.devices.fold import Claim, TenantChanges, Touched, fold, touched_by
from clientmgr.devices.queries import device_queries
from clientmgr.devices.rows import (
    LAST_SEEN,
    claim_columns,
    device_columns,
    link_columns,
    row_of,
    state_of,
    token_columns,
)
from clientmgr.devices.state import DeviceKey, TokenKey

DEVICES_AT_ONCE = 64
"""In one statement."""
Rows = AsyncCursor[tuple[Any, ...]]

Links = dict[tuple[int, DeviceKey], int]
"""(contact, device) → when it was last linked."""


@functools.lru_cache(maxsize=4096)
def tenant_queries(customer_id: CustomerId) -> Mapping[str, bytes]:
    """The queries for one tenant, its schema written in, quoted and qualified."""
    queries = device_queries("devices")
    return {name: in_schema(sql, customer_id).encode() for name, sql in queries.items()}


async def apply_events(connection: AsyncConnection[Any], events: Mapping[CustomerId, Sequence[DecodedEvent]]) -> None:
    """Write what a batch's events say of its tenants."""
    touched = {customer_id: touched_by(of_tenant) for customer_id, of_tenant in events.items()}
    await _apply(connection, touched, lambda customer_id: fold(events[customer_id]))


async def _apply(
    connection: AsyncConnection[Any],
    touched: Mapping[CustomerId, Touched],
    changes_of: Callable[[CustomerId], TenantChanges],
) -> None:
    """Ask for everything at once. While the server looks or writes, what comes next is seen to here."""
    async with connection.pipeline():
        await _lock_writes(connection, touched)
        asked = {customer_id: await _ask(connection, customer_id, touched[customer_id]) for customer_id in touched}
        for customer_id, questions in asked.items():
            await _merge(connection, tenant_queries(customer_id), changes_of(customer_id), questions)


async def delete_contacts(
    connection: AsyncConnection[Any], contacts: Mapping[CustomerId, Mapping[int, int]]
) -> dict[CustomerId, dict[int, int]]:
    """Delete tenants' contacts (id → version of the deletion) with their devices; returns how many of each went."""
    links = await _record_deletions(connection, contacts)
    deletions = {
        customer_id: forget_contacts(tombstones, of_contacts).deletions
        for customer_id, (tombstones, of_contacts) in links.items()
        if of_contacts
    }
    gone = await _delete_devices_until(connection, deletions)
    # What is left was never here, or has newer parts that stay.
    others = {
        customer_id: TenantChanges(deletions=left)
        for customer_id, versions in deletions.items()
        if (left := {key: version for key, version in versions.items() if key not in gone[customer_id]})
    }
    if others:
        touched = {customer_id: changes.touched() for customer_id, changes in others.items()}
        await _apply(connection, touched, others.__getitem__)
    return {
        customer_id: Counter(contact_id for contact_id, key in links[customer_id][1] if key in keys)
        for customer_id, keys in gone.items()
    }


async def _record_deletions(
    connection: AsyncConnection[Any], contacts: Mapping[CustomerId, Mapping[int, int]]
) -> dict[CustomerId, tuple[dict[int, int], Links]]:
    """Leave the contacts' tombstones; returns up to when each is deleted, and the devices it was linked to."""
    sent = {}
    async with connection.pipeline():
        await _lock_writes(connection, contacts)
        for customer_id in sorted(contacts):
            queries, versions = tenant_queries(customer_id), contacts[customer_id]
            wanted = {"contact_ids": bigint_array(versions)}
            # A contact that was deleted before, and later than this message says, stays deleted until then.
            await connection.execute(
                queries["upsert_contact_tombstones"], wanted | {"versions": bigint_array(versions.values())}
            )
            tombstones = await _send(connection, queries["contact_tombstones"], wanted)
            sent[customer_id] = tombstones, await _send(connection, queries["links"], wanted)
    return {
        customer_id: (
            dict(await tombstones.fetchall()),
            {(row[0], DeviceKey(row[1], row[2])): row[3] for row in await links.fetchall()},
        )
        for customer_id, (tombstones, links) in sent.items()
    }


async def _delete_devices_until(
    connection: AsyncConnection[Any], deletions: Mapping[CustomerId, Mapping[DeviceKey, int]]
) -> dict[CustomerId, set[DeviceKey]]:
    """Delete the devices that nothing newer is known of, and leave tombstones of all; returns which went."""
    sent = {}
    async with connection.pipeline():
        for customer_id, versions in deletions.items():
            queries = tenant_queries(customer_id)
            columns = device_columns(versions) | {"versions": bigint_array(versions.values())}
            sent[customer_id] = await _send(connection, queries["delete_devices_until"], columns)
            await connection.execute(queries["upsert_device_tombstones"], columns)
    return {customer_id: {DeviceKey(*row) for row in await rows.fetchall()} for customer_id, rows in sent.items()}


async def apply_verdicts(connection: AsyncConnection[Any], customer_id: CustomerId, verdicts: Sequence[Verdict]) -> int:
    """Set the tokens' status where the verdicts still apply; returns how many did."""
    queries = tenant_queries(customer_id)
    columns = {
        "application_codes": text_array(verdict.application_code for verdict in verdicts),
        "client_ids": text_array(verdict.client_id for verdict in verdicts),
        "digests": bytea_array(verdict.token_digest for verdict in verdicts),
        "statuses": text_array(verdict.status for verdict in verdicts),
        "versions": bigint_array(verdict.occurred_at for verdict in verdicts),
    }
    async with connection.pipeline():
        await _lock_writes(connection, [customer_id])
        updated = await _send(connection, queries["update_token_status"], columns)
    return updated.rowcount


async def _lock_writes(connection: AsyncConnection[Any], customer_ids: Iterable[CustomerId]) -> None:
    lock = device_queries("devices")["lock_writes"]
    await connection.execute(lock.encode(), {"customer_ids": bigint_array(sorted(customer_ids))})


@dataclass(frozen=True, slots=True)
class Questions:
    """What was asked of one tenant. Whoever fetches the first answer has waited for all."""

    devices: Sequence[tuple[Sequence[DeviceKey], Rows]]
    claims: Rows | None
    contacts: Rows | None


async def _ask(connection: AsyncConnection[Any], customer_id: CustomerId, touched: Touched) -> Questions:
    queries = tenant_queries(customer_id)
    claims = await _send(connection, queries["claims"], token_columns(touched.tokens)) if touched.tokens else None
    contacts = None
    if touched.contacts:
        contact_ids = bigint_array(touched.contacts)
        contacts = await _send(connection, queries["contact_tombstones"], {"contact_ids": contact_ids})
    devices = [
        (keys, await _send(connection, queries["devices"], device_columns(keys)))
        for keys in portions(list(touched.devices), DEVICES_AT_ONCE)
    ]
    return Questions(devices, claims, contacts)


async def _merge(
    connection: AsyncConnection[Any], queries: Mapping[str, bytes], changes: TenantChanges, questions: Questions
) -> None:
    """Bring one tenant's tables to what the changes and the answers say together."""
    stored = Stored()
    for row in () if questions.claims is None else await questions.claims.fetchall():
        stored.claims[TokenKey(row[0], bytes(row[-2]))] = Claim(row[-1], row[1])
        if row[LAST_SEEN] is not None:
            stored.devices[DeviceKey(row[0], row[1])] = state_of(row)
    if questions.contacts is not None:
        stored.contact_tombstones = dict(await questions.contacts.fetchall())
    decider = Decider(changes, stored)
    await _write(connection, queries, decider.first())
    for keys, rows in questions.devices:
        for row in await rows.fetchall():
            key = DeviceKey(row[0], row[1])
            if row[2] is not None:
                stored.device_tombstones[key] = row[2]
            if row[LAST_SEEN] is not None:
                stored.devices[key] = state_of(row)
        await _write(connection, queries, decider.about(keys))
    await _write(connection, queries, decider.about(decider.former_holders))


async def _write(connection: AsyncConnection[Any], queries: Mapping[str, bytes], writes: Writes) -> None:
    if writes.deleted_devices:
        await connection.execute(queries["delete_devices"], device_columns(writes.deleted_devices))
    if writes.device_tombstones:
        versions = {"versions": bigint_array(writes.device_tombstones.values())}
        columns = device_columns(writes.device_tombstones) | versions
        await connection.execute(queries["upsert_device_tombstones"], columns)
    if writes.claims:
        await connection.execute(queries["upsert_claims"], claim_columns(writes.claims))
    if writes.links:
        await connection.execute(queries["upsert_links"], link_columns(writes.links))
    if writes.devices:
        rows = msgspec.json.encode([row_of(key, state) for key, state in writes.devices.items()]).decode()
        await connection.execute(queries["upsert_devices"], {"rows": rows})


async def _send(connection: AsyncConnection[Any], query: bytes, parameters: Mapping[str, Any]) -> Rows:
    cursor: Rows = connection.cursor(row_factory=tuple_row)
    await cursor.execute(query, parameters)
    return cursor
