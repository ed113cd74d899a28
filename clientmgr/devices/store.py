"""Reads and writes a tenant's device tables for the workers: a fixed number of statements a batch, in few round trips.

The caller's transaction is used as it is. Whoever writes takes the tenant's write lock first, and keeps it to the end.
"""

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import tuple_row

from clientmgr.devices.arrays import bigint_array, bytea_array, text_array
from clientmgr.devices.decide import Stored, Writes, decide, forget_contacts
from clientmgr.devices.fold import Claim, TenantChanges
from clientmgr.devices.state import (
    INFO_FIELDS,
    NO_DIGEST,
    ContactFacet,
    DeviceKey,
    DeviceState,
    Info,
    PushToken,
    TokenFacet,
    TokenKey,
    provider_of,
)
from clientmgr.sqlfiles import named_queries
from clientmgr.tenants.names import CustomerId, in_schema

JSON_FIELDS = ("push_settings", "attributes")
DEVICES_AT_ONCE = 128
Item = TypeVar("Item")
Rows = AsyncCursor[tuple[Any, ...]]

# Where `devices` and `token_holders` have them.
_INFO_COLUMNS = {name: place for place, name in enumerate(INFO_FIELDS, start=13)}
_INFO_VERSIONS = msgspec.json.Decoder(dict[str, int])


@functools.lru_cache(maxsize=4096)
def tenant_queries(customer_id: CustomerId) -> Mapping[str, bytes]:
    """The queries for one tenant, its schema written in, quoted and qualified."""
    queries = named_queries("tenant/queries/devices.sql")
    return {name: in_schema(sql, customer_id).encode() for name, sql in queries.items()}


async def apply_changes(connection: AsyncConnection[Any], customer_id: CustomerId, changes: TenantChanges) -> Writes:
    """Write what a batch says of one tenant. Returns what it changed."""
    stored = await _load(connection, customer_id, changes)
    writes = decide(changes, stored)
    await write(connection, customer_id, writes)
    return writes


async def delete_contacts(
    connection: AsyncConnection[Any], customer_id: CustomerId, contacts: Mapping[int, int]
) -> dict[int, int]:
    """Delete contacts (id → version of the deletion) with their devices; returns how many devices of each went."""
    queries = tenant_queries(customer_id)
    wanted = {"contact_ids": bigint_array(contacts)}
    async with connection.pipeline():
        await connection.execute(queries["lock_writes"], {"customer_id": customer_id})
        # A contact that was deleted before, and later than this message says, stays deleted until then.
        await connection.execute(
            queries["upsert_contact_tombstones"], wanted | {"versions": bigint_array(contacts.values())}
        )
        tombstones = await _send(connection, queries["contact_tombstones"], wanted)
        found = await _send(connection, queries["links"], wanted)
    links = {(row[0], DeviceKey(row[1], row[2])): row[3] for row in await found.fetchall()}
    if not links:
        return {}
    deletions = forget_contacts(dict(await tombstones.fetchall()), links).deletions
    columns = _device_columns(deletions) | {"versions": bigint_array(deletions.values())}
    async with connection.pipeline():
        deleted = await _send(connection, queries["delete_devices_until"], columns)
        await connection.execute(queries["upsert_device_tombstones"], columns)
    gone = {DeviceKey(*row) for row in await deleted.fetchall()}
    # What is left was never here, or has newer parts that stay.
    others = TenantChanges(deletions={key: version for key, version in deletions.items() if key not in gone})
    if others.deletions:
        await apply_changes(connection, customer_id, others)
    return Counter(contact_id for contact_id, key in links if key in gone)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a provider said of a device's token."""

    application_code: str
    client_id: str
    token_digest: bytes
    status: str
    occurred_at: int


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
        await connection.execute(queries["lock_writes"], {"customer_id": customer_id})
        updated = await _send(connection, queries["update_token_status"], columns)
    return updated.rowcount


async def _load(connection: AsyncConnection[Any], customer_id: CustomerId, changes: TenantChanges) -> Stored:
    queries = tenant_queries(customer_id)
    keys = list(changes.keys())
    devices = _device_columns(keys)
    tokens = _token_columns(changes.claims)
    contacts = sorted({contact_id for contact_id, _ in changes.links})
    stored = Stored()
    async with connection.pipeline():
        await connection.execute(queries["lock_writes"], {"customer_id": customer_id})
        claims = await _send(connection, queries["claims"], tokens) if changes.claims else None
        gone_contacts = (
            await _send(connection, queries["contact_tombstones"], {"contact_ids": bigint_array(contacts)})
            if contacts
            else None
        )
        gone_devices = await _send(connection, queries["device_tombstones"], devices)
        holders = await _send(connection, queries["token_holders"], tokens) if changes.claims else None
        parts = [await _send(connection, queries["devices"], _device_columns(part)) for part in _parts(keys)]
        if claims is not None:
            stored.claims = {TokenKey(row[0], bytes(row[1])): Claim(row[3], row[2]) for row in await claims.fetchall()}
        if gone_contacts is not None:
            stored.contact_tombstones = dict(await gone_contacts.fetchall())
        stored.device_tombstones = {DeviceKey(row[0], row[1]): row[2] for row in await gone_devices.fetchall()}
        for rows in [holders, *parts] if holders else parts:
            for row in await rows.fetchall():
                stored.devices[DeviceKey(row[0], row[1])] = _state_of(row)
    return stored


async def write(connection: AsyncConnection[Any], customer_id: CustomerId, writes: Writes) -> None:
    """Bring the tables to what was decided."""
    queries = tenant_queries(customer_id)
    async with connection.pipeline():
        if writes.deleted_devices:
            await connection.execute(queries["delete_devices"], _device_columns(writes.deleted_devices))
        if writes.device_tombstones:
            versions = {"versions": bigint_array(writes.device_tombstones.values())}
            columns = _device_columns(writes.device_tombstones) | versions
            await connection.execute(queries["upsert_device_tombstones"], columns)
        if writes.claims:
            await connection.execute(queries["upsert_claims"], _claim_columns(writes.claims))
        if writes.links:
            await connection.execute(queries["upsert_links"], _link_columns(writes.links))
        for part in _parts(list(writes.devices.items())):
            rows = msgspec.json.encode([_row_of(key, state) for key, state in part]).decode()
            await connection.execute(queries["upsert_devices"], {"rows": rows})


def _parts(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Devices for one statement. While the server is at one part, we encode or decode another."""
    for start in range(0, len(items), DEVICES_AT_ONCE):
        yield items[start : start + DEVICES_AT_ONCE]


async def _send(connection: AsyncConnection[Any], query: bytes, parameters: Mapping[str, Any]) -> Rows:
    cursor: Rows = connection.cursor(row_factory=tuple_row)
    await cursor.execute(query, parameters)
    return cursor


def _state_of(row: Sequence[Any]) -> DeviceState:
    """A row of `devices` as a state."""
    (_, _, contact_id, contact_version, push_token, kind, digest, status, version, status_version, web_push) = row[:11]
    token = None if kind is None else PushToken(kind, push_token, _undecoded(web_push))
    info = {name: Info(set_at, row[_INFO_COLUMNS[name]]) for name, set_at in _INFO_VERSIONS.decode(row[12]).items()}
    for name in JSON_FIELDS:
        if (known := info.get(name)) is not None:
            info[name] = Info(known.version, _undecoded(known.value))
    return DeviceState(
        info,
        TokenFacet(version, NO_DIGEST if digest is None else bytes(digest), token, status, status_version),
        ContactFacet(contact_version, contact_id),
        row[11],
    )


def _undecoded(text: str | None) -> msgspec.Raw | None:
    """JSON that goes back as it came: hardly anybody looks into it."""
    return None if text is None else msgspec.Raw(text)


def _row_of(key: DeviceKey, state: DeviceState) -> dict[str, Any]:
    """A state as the JSON that `upsert_devices` reads; what is absent is null there."""
    token = state.token
    row: dict[str, Any] = {
        "application_code": key.application_code,
        "client_id": key.client_id,
        "contact_id": state.contact.contact_id,
        "contact_version": state.contact.version,
        "push_token_digest": None if token.digest == NO_DIGEST else f"\\x{token.digest.hex()}",
        "push_token_status": token.status,
        "push_token_version": token.version,
        "push_token_status_version": token.status_version,
        "last_seen_version": state.last_seen,
        "info_versions": {name: info.version for name, info in state.info.items()},
        "provider": provider_of(state),
    }
    if token.token is not None:
        row |= {
            "push_token": token.token.token,
            "push_token_kind": token.token.kind,
            "web_push": token.token.web_push,
        }
    for name, info in state.info.items():
        row[name] = info.value
    return row


def _device_columns(keys: Iterable[DeviceKey]) -> dict[str, str]:
    ordered = list(keys)
    return {
        "application_codes": text_array(key.application_code for key in ordered),
        "client_ids": text_array(key.client_id for key in ordered),
    }


def _token_columns(keys: Iterable[TokenKey]) -> dict[str, str]:
    ordered = list(keys)
    return {
        "application_codes": text_array(key.application_code for key in ordered),
        "digests": bytea_array(key.digest for key in ordered),
    }


def _claim_columns(claims: Mapping[TokenKey, Claim]) -> dict[str, str]:
    return _token_columns(claims) | {
        "client_ids": text_array(claim.client_id for claim in claims.values()),
        "versions": bigint_array(claim.version for claim in claims.values()),
    }


def _link_columns(links: Mapping[tuple[int, DeviceKey], int]) -> dict[str, str]:
    return _device_columns(key for _, key in links) | {
        "contact_ids": bigint_array(contact_id for contact_id, _ in links),
        "versions": bigint_array(links.values()),
    }
