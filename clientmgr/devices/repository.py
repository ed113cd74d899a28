"""`DeviceRepository`: the devices of many contacts at once, from a tenant's tables in PostgreSQL. Read only."""

import functools
import operator
from collections.abc import Collection
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from clientmgr.arrays import bigint_array, text_array
from clientmgr.devices.contact_devices import ContactDevice, DevicesByContact
from clientmgr.sqlfiles import named_queries
from clientmgr.tenants.names import CustomerId, in_schema

_CLIENT_ID = operator.attrgetter("client_id")


class DeviceRepository:
    """Reads on a connection that it is given, in whatever transaction that has open."""

    async def find_by_contact_keys(
        self,
        connection: AsyncConnection[Any],
        customer_id: CustomerId,
        application_code: str,
        contact_ids: Collection[int],
    ) -> DevicesByContact:
        """The devices of these contacts in an application, by contact and in the order of their client ids.

        One query, however many; some hundred contacts at a time pay best.
        """
        found: DevicesByContact = {}
        if not contact_ids:
            return found
        async with connection.cursor(row_factory=tuple_row, binary=True) as cursor:
            await cursor.execute(
                find_query(customer_id),
                {"application_code": application_code, "contact_ids": bigint_array(contact_ids)},
            )
            for row in await cursor.fetchall():
                found.setdefault(row[0], []).append(ContactDevice(*row))
        for devices in found.values():
            if len(devices) > 1:
                devices.sort(key=_CLIENT_ID)
        return found

    async def find_deleted_contacts(
        self, connection: AsyncConnection[Any], customer_id: CustomerId, contact_ids: Collection[int]
    ) -> set[int]:
        """Those of these contacts that have been deleted: what another store still has of them is not to be used."""
        async with connection.cursor(row_factory=tuple_row, binary=True) as cursor:
            await cursor.execute(_tombstones_query(customer_id), {"contact_ids": bigint_array(contact_ids)})
            return {contact_id for contact_id, _ in await cursor.fetchall()}

    async def find_known(
        self,
        connection: AsyncConnection[Any],
        customer_id: CustomerId,
        application_code: str,
        client_ids: Collection[str],
    ) -> set[str]:
        """Those of these devices of an application that there are here, whoever has them, or that were deleted."""
        if not client_ids:
            return set()
        async with connection.cursor(row_factory=tuple_row, binary=True) as cursor:
            await cursor.execute(
                _known_query(customer_id),
                {"application_code": application_code, "client_ids": text_array(client_ids)},
            )
            return {client_id for (client_id,) in await cursor.fetchall()}


@functools.lru_cache(maxsize=4096)
def find_query(customer_id: CustomerId) -> bytes:
    """The query behind `find_by_contact_keys`, with the customer's schema in it."""
    return in_schema(named_queries("tenant/queries/contact_devices.sql")["find_by_contact_keys"], customer_id).encode()


@functools.lru_cache(maxsize=4096)
def _known_query(customer_id: CustomerId) -> bytes:
    return in_schema(named_queries("tenant/queries/contact_devices.sql")["find_known"], customer_id).encode()


@functools.lru_cache(maxsize=4096)
def _tombstones_query(customer_id: CustomerId) -> bytes:
    return in_schema(named_queries("tenant/queries/devices.sql")["contact_tombstones"], customer_id).encode()
