"""Writes rows of one tenant in one transaction: new devices by COPY, all others by the rules that events follow."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from clientmgr.base.arrays import bytea_array
from clientmgr.base.customer_ids import CustomerId
from clientmgr.devices.fold import TenantChanges, Touched
from clientmgr.devices.imports.changes import TenantRows
from clientmgr.devices.imports.copying import claim_line, device_line, link_lines
from clientmgr.devices.queries import OTHER_WAYS
from clientmgr.devices.rows import named_columns
from clientmgr.devices.store import DeviceStore, tenant_queries

DEVICE, TOKEN, CONTACT = 1, 2, 3
"""What a row of `known` is."""
_BY_KEY = "; ".join(f"SET LOCAL enable_{way} = off" for way in OTHER_WAYS).encode()


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """Rows of one tenant, ready to be written. All that takes a processor's time is done."""

    customer_id: CustomerId
    tenant: TenantRows
    lines: dict[bytes, tuple[str, str, str]]
    """Of COPY into devices, links and claims, by device: of those that may turn out to be new."""

    @classmethod
    def of(cls, tenant: TenantRows) -> "PreparedRows":
        changes = tenant.changes
        claims = {claim.device: claim_line(token, claim) for token, claim in changes.claims.items()}
        lines = {
            device: (
                device_line(device, changes.names[device], state),
                link_lines(device, changes.links.get(device, ())),
                claims.get(device, ""),
            )
            for device, state in changes.devices.items()
            if device not in tenant.several
        }
        return cls(tenant.rows[0].customer_id, tenant, lines)


async def write_rows(connection: AsyncConnection[Any], store: DeviceStore, prepared: PreparedRows) -> None:
    """In the caller's transaction. The tenant's write lock is held to its end: live events wait, and nothing comes
    between the look at what is known and the COPY."""
    customer_id, tenant = prepared.customer_id, prepared.tenant
    await connection.execute(_BY_KEY)
    await store.lock(connection, customer_id)
    new = prepared.lines.keys() - await _known_devices(connection, customer_id, tenant)
    if new:
        await _copy_new(connection, prepared, new)
    if len(new) < len(tenant.changes.devices):
        touched, changes = _others(tenant, new)
        await store.apply_changes(connection, customer_id, touched, changes)
    if tenant.verdicts:
        await store.apply_verdicts(connection, {customer_id: tenant.verdicts})


async def _known_devices(connection: AsyncConnection[Any], customer_id: CustomerId, tenant: TenantRows) -> set[bytes]:
    """Devices that are more than new: something is known of them, their token or their contact."""
    touched, changes = tenant.touched, tenant.changes
    names = named_columns(list(touched.devices), changes.names)
    wanted = {**names, "tokens": bytea_array(touched.tokens), "contacts": bytea_array(touched.contacts)}
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(tenant_queries(customer_id)["known"], wanted, prepare=False)
        rows = await cursor.fetchall()
    known = {what: {bytes(found) for kind, found in rows if kind == what} for what in (DEVICE, TOKEN, CONTACT)}
    devices = known[DEVICE]
    if known[TOKEN]:
        devices |= {claim.device for token, claim in changes.claims.items() if token in known[TOKEN]}
    if known[CONTACT]:
        of_contact = known[CONTACT]
        devices |= {
            device for device, links in changes.links.items() if any(one.contact in of_contact for one in links)
        }
    return devices


async def _copy_new(connection: AsyncConnection[Any], prepared: PreparedRows, new: Collection[bytes]) -> None:
    queries = tenant_queries(prepared.customer_id)
    lines = [of_device for device, of_device in prepared.lines.items() if device in new]
    for query, of_table in zip(("copy_devices", "copy_links", "copy_claims"), zip(*lines, strict=True), strict=True):
        if data := "".join(of_table):
            async with connection.cursor() as cursor, cursor.copy(queries[query]) as copy:
                await copy.write(data.encode())


def _others(tenant: TenantRows, new: Collection[bytes]) -> tuple[Touched, TenantChanges]:
    """All that is not about new devices."""
    touched, changes = tenant.touched, tenant.changes
    if not new:
        return touched, changes
    claims = {token: claim for token, claim in changes.claims.items() if claim.device not in new}
    links = {device: of_device for device, of_device in changes.links.items() if device not in new}
    devices = {device: state for device, state in changes.devices.items() if device not in new}
    contacts = {link.contact for of_device in links.values() for link in of_device} & touched.contacts
    return (
        Touched(set(devices), set(claims), set(links), contacts),
        TenantChanges(changes.names, devices, claims=claims, links=links),
    )
