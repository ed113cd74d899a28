"""Writes rows of one tenant in one transaction: new devices by COPY, all others by the rules that events follow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from clientmgr.base.arrays import bytea_array, text_array
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.devices.imports.changes import changes_of, verdicts_of
from clientmgr.devices.imports.copying import CopiedRows
from clientmgr.devices.imports.files import RawRow
from clientmgr.devices.imports.row_columns import RowColumns
from clientmgr.devices.imports.rows import ImportedRow
from clientmgr.devices.queries import OTHER_WAYS
from clientmgr.devices.store import DeviceStore, tenant_queries

DEVICE, TOKEN, CONTACT = 1, 2, 3
"""What a row of `known` is."""
_BY_KEY = "; ".join(f"SET LOCAL enable_{way} = off" for way in OTHER_WAYS).encode()


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """Rows of one tenant, ready to be written. All that takes a processor's time is done."""

    customer_id: CustomerId
    columns: RowColumns
    copied: CopiedRows

    @classmethod
    def of(cls, customer_id: CustomerId, columns: RowColumns, hashes: KeyedHashes) -> "PreparedRows":
        return cls(customer_id, columns, CopiedRows.of(columns, customer_id, hashes))


async def write_rows(
    connection: AsyncConnection[Any],
    store: DeviceStore,
    prepared: PreparedRows,
    convert: Callable[[RawRow], ImportedRow],
) -> None:
    """In the caller's transaction. The tenant's write lock is held to its end: live events wait, and nothing comes
    between the look at what is known and the COPY."""
    customer_id, copied = prepared.customer_id, prepared.copied
    await connection.execute(_BY_KEY)
    await store.lock(connection, customer_id)
    not_new = copied.several | await _known_devices(connection, prepared)
    are_new = [device not in not_new for device in copied.devices]
    await _copy(connection, prepared, are_new)

    def rows(are_wanted: Sequence[bool]) -> list[ImportedRow]:
        return [convert(raw) for raw in compress(prepared.columns.raws, are_wanted)]

    if not_new:
        touched, changes = changes_of(rows([not is_new for is_new in are_new]), store.hashes)
        await store.apply_changes(connection, customer_id, touched, changes)
    if verdicts := verdicts_of(rows(prepared.columns.are_invalid)):
        await store.apply_verdicts(connection, {customer_id: verdicts})


async def _known_devices(connection: AsyncConnection[Any], prepared: PreparedRows) -> set[bytes]:
    """Devices that are more than new: something is known of them, their token or their contact."""
    columns, copied = prepared.columns, prepared.copied
    wanted = {
        "devices": bytea_array(copied.devices),
        "application_codes": text_array(columns.application_codes),
        "client_ids": text_array(columns.client_ids),
        "tokens": bytea_array({token for token in copied.tokens if token is not None}),
        "contacts": bytea_array({contact for contact in copied.contacts if contact is not None}),
    }
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(tenant_queries(prepared.customer_id)["known"], wanted, prepare=False)
        rows = await cursor.fetchall()
    known = {what: {bytes(found) for kind, found in rows if kind == what} for what in (DEVICE, TOKEN, CONTACT)}
    devices = known[DEVICE]
    if known[TOKEN] or known[CONTACT]:
        devices |= {
            device
            for device, token, contact in zip(copied.devices, copied.tokens, copied.contacts, strict=True)
            if token in known[TOKEN] or contact in known[CONTACT]
        }
    return devices


async def _copy(connection: AsyncConnection[Any], prepared: PreparedRows, are_new: Sequence[bool]) -> None:
    queries, copied = tenant_queries(prepared.customer_id), prepared.copied
    for query, lines in (
        ("copy_devices", copied.device_lines),
        ("copy_links", copied.link_lines),
        ("copy_claims", copied.claim_lines),
    ):
        if data := "".join(compress(lines, are_new)):
            async with connection.cursor() as cursor, cursor.copy(queries[query]) as copy:
                await copy.write(data.encode())
