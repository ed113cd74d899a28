"""Writes rows of one tenant in one transaction: new devices by COPY, all others by the rules that events follow."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from clientmgr.base.arrays import bytea_array
from clientmgr.base.customer_ids import CustomerId
from clientmgr.devices.imports.changes import TenantRows
from clientmgr.devices.imports.copying import claim_line, device_line, link_line
from clientmgr.devices.queries import OTHER_WAYS
from clientmgr.devices.rows import named_columns
from clientmgr.devices.store import DeviceStore, tenant_queries

DEVICE, TOKEN, CONTACT = 1, 2, 3
"""What a row of `known` is."""
_BY_KEY = "; ".join(f"SET LOCAL enable_{way} = off" for way in OTHER_WAYS).encode()


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """Rows of one tenant, ready to be written. All that takes a processor's time is done."""

    tenant: TenantRows
    lines: dict[bytes, tuple[str, str, str]]
    """Of COPY into devices, links and claims, by device: of those that may turn out to be new."""

    @classmethod
    def of(cls, tenant: TenantRows) -> "PreparedRows":
        lines = {
            one.device: (device_line(one), link_line(one), claim_line(one))
            for one in tenant.named
            if one.device not in tenant.several
        }
        return cls(tenant, lines)


async def write_rows(connection: AsyncConnection[Any], store: DeviceStore, prepared: PreparedRows) -> None:
    """In the caller's transaction. The tenant's write lock is held to its end: live events wait, and nothing comes
    between the look at what is known and the COPY."""
    tenant = prepared.tenant
    customer_id = tenant.customer_id
    await connection.execute(_BY_KEY)
    await store.lock(connection, customer_id)
    new = prepared.lines.keys() - await _known_devices(connection, customer_id, tenant)
    if new:
        await _copy_new(connection, prepared, new)
    if len(new) < len(tenant.names):
        touched, changes = tenant.changes(without=new)
        await store.apply_changes(connection, customer_id, touched, changes)
    if tenant.verdicts:
        await store.apply_verdicts(connection, {customer_id: tenant.verdicts})


async def _known_devices(connection: AsyncConnection[Any], customer_id: CustomerId, tenant: TenantRows) -> set[bytes]:
    """Devices that are more than new: something is known of them, their token or their contact."""
    names = named_columns(list(tenant.names), tenant.names)
    tokens = {one.token for one in tenant.named if one.token is not None}
    contacts = {one.contact for one in tenant.named if one.contact is not None}
    wanted = {**names, "tokens": bytea_array(tokens), "contacts": bytea_array(contacts)}
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(tenant_queries(customer_id)["known"], wanted, prepare=False)
        rows = await cursor.fetchall()
    known = {what: {bytes(found) for kind, found in rows if kind == what} for what in (DEVICE, TOKEN, CONTACT)}
    devices = known[DEVICE]
    if known[TOKEN] or known[CONTACT]:
        devices |= {one.device for one in tenant.named if one.token in known[TOKEN] or one.contact in known[CONTACT]}
    return devices


async def _copy_new(connection: AsyncConnection[Any], prepared: PreparedRows, new: Collection[bytes]) -> None:
    queries = tenant_queries(prepared.tenant.customer_id)
    lines = [of_device for device, of_device in prepared.lines.items() if device in new]
    for query, of_table in zip(("copy_devices", "copy_links", "copy_claims"), zip(*lines, strict=True), strict=True):
        if data := "".join(of_table):
            async with connection.cursor() as cursor, cursor.copy(queries[query]) as copy:
                await copy.write(data.encode())
