"""`DeviceRepository`: the devices of many contacts at once, from a tenant's tables in PostgreSQL. Read only."""

import functools
import operator
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from clientmgr.base.arrays import bigint_array, text_array
from clientmgr.base.customer_ids import CustomerId, in_schema
from clientmgr.base.sqlfiles import named_queries
from clientmgr.devices.contact_devices import ContactDevice, DevicesByContact, Told
from clientmgr.devices.state import INFO_FIELDS

_QUERIES = named_queries("tenant/queries/contact_devices.sql")
TOKEN_FIELDS = ("provider", "push_token", "push_token_kind", "push_token_status", "web_push")
_CLIENT_ID = operator.attrgetter("client_id")
_INFO_VERSIONS = msgspec.json.Decoder(dict[str, int])


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

    async def transaction_age_s(self, connection: AsyncConnection[Any]) -> float:
        """For how long the connection's transaction has been open."""
        async with connection.cursor(row_factory=tuple_row, binary=True) as cursor:
            await cursor.execute(_QUERIES["transaction_age"].encode())
            ((age_s,),) = await cursor.fetchall()
            return float(age_s)

    async def find_told(
        self,
        connection: AsyncConnection[Any],
        customer_id: CustomerId,
        application_code: str,
        client_ids: Collection[str],
    ) -> dict[str, Told]:
        """What events have told of these devices of an application, by client id; without those that none was about."""
        if not client_ids:
            return {}
        async with connection.cursor(row_factory=tuple_row, binary=True) as cursor:
            await cursor.execute(
                _told_query(customer_id),
                {"application_code": application_code, "client_ids": text_array(client_ids)},
            )
            return {row[0]: _told_of(row) for row in await cursor.fetchall()}


def _told_of(row: Sequence[Any]) -> Told:
    _, whose, info_versions, has_set_token, last_seen_at = row[:5]
    if whose:
        return Told(whose=True)
    values = dict(zip((*TOKEN_FIELDS, *INFO_FIELDS), row[5:], strict=True))
    told = [*(TOKEN_FIELDS if has_set_token else ()), *_INFO_VERSIONS.decode(info_versions)]
    return Told(whose=False, fields={"last_seen_at": last_seen_at} | {name: values[name] for name in told})


@functools.lru_cache(maxsize=4096)
def find_query(customer_id: CustomerId) -> bytes:
    """The query behind `find_by_contact_keys`, with the customer's schema in it."""
    return in_schema(_QUERIES["find_by_contact_keys"], customer_id).encode()


@functools.lru_cache(maxsize=4096)
def _told_query(customer_id: CustomerId) -> bytes:
    return in_schema(_QUERIES["find_told"], customer_id).encode()


@functools.lru_cache(maxsize=4096)
def _tombstones_query(customer_id: CustomerId) -> bytes:
    return in_schema(named_queries("tenant/queries/devices.sql")["contact_tombstones"], customer_id).encode()
