"""`DeviceRepository`: the devices of many contacts at once, from a tenant's tables in PostgreSQL. Read only."""

import functools
import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from clientmgr.base.arrays import bigint_array, bytea_array, text_array
from clientmgr.base.customer_ids import CustomerId, in_schema
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.contracts.push_tokens import token_digest
from clientmgr.devices.contact_devices import ContactDevice, DevicesByContact, Reported
from clientmgr.devices.queries import REPORTED_COLUMNS, TOKEN_FIELDS, contact_devices_query, device_queries

_QUERIES = device_queries("contact_devices")
_CLIENT_ID = operator.attrgetter("client_id")
_INFO_VERSIONS = msgspec.json.Decoder(dict[str, int])


@dataclass(frozen=True)
class DeviceRepository:
    """Reads on a connection that it is given, in whatever transaction that has open."""

    hashes: KeyedHashes

    async def find_by_contact_keys(
        self,
        connection: AsyncConnection[Any],
        customer_id: CustomerId,
        application_code: str,
        contact_ids: Collection[int],
        *,
        fields: frozenset[str] | None = None,
    ) -> DevicesByContact:
        """The devices of these contacts in an application, by contact and in the order of their client ids.

        `fields`: those to read besides the address, which all have; the others are None. Without it all are read: that
        takes twice as long. One query, however many; some hundred contacts at a time pay best.
        """
        found: DevicesByContact = {}
        if not contact_ids:
            return found
        async with connection.cursor(row_factory=tuple_row, binary=True) as cursor:
            await cursor.execute(
                find_query(customer_id, fields),
                {"application_code": application_code, "contact_ids": bigint_array(contact_ids)},
            )
            for row in await cursor.fetchall():
                device = ContactDevice(*row)
                found.setdefault(device.contact_id, []).append(device)
        for devices in found.values():
            if len(devices) > 1:
                devices.sort(key=_CLIENT_ID)
        return found

    async def find_deleted_contacts(
        self, connection: AsyncConnection[Any], customer_id: CustomerId, contact_ids: Collection[int]
    ) -> set[int]:
        """Those of these contacts that have been deleted: what another store still has of them is not to be used."""
        asked = {self.hashes.contact(customer_id, contact_id): contact_id for contact_id in contact_ids}
        async with connection.cursor(row_factory=tuple_row, binary=True) as cursor:
            await cursor.execute(_deleted_query(customer_id), {"contacts": bytea_array(asked)})
            return {asked[contact] for (contact,) in await cursor.fetchall()}

    async def find_verdicts(
        self,
        connection: AsyncConnection[Any],
        customer_id: CustomerId,
        application_code: str,
        tokens: Collection[str],
    ) -> dict[str, str]:
        """What providers said last of these tokens (or web push endpoints) of an application, where they did."""
        asked = {self.hashes.token(customer_id, application_code, token_digest(token)): token for token in tokens}
        if not asked:
            return {}
        async with connection.cursor(row_factory=tuple_row, binary=True) as cursor:
            await cursor.execute(_verdicts_query(customer_id), {"tokens": bytea_array(asked)})
            return {asked[token]: status for token, status in await cursor.fetchall()}

    async def transaction_age_s(self, connection: AsyncConnection[Any]) -> float:
        """For how long the connection's transaction has been open."""
        async with connection.cursor(row_factory=tuple_row, binary=True) as cursor:
            await cursor.execute(_QUERIES["transaction_age"].encode())
            ((age_s,),) = await cursor.fetchall()
            return float(age_s)

    async def find_reported(
        self,
        connection: AsyncConnection[Any],
        customer_id: CustomerId,
        application_code: str,
        client_ids: Collection[str],
    ) -> dict[str, Reported]:
        """What events reported about these devices of an application, by client id. Where none did, there is none."""
        if not client_ids:
            return {}
        async with connection.cursor(row_factory=tuple_row, binary=True) as cursor:
            await cursor.execute(
                _reported_query(customer_id),
                {
                    "application_code": application_code,
                    "client_ids": text_array(client_ids),
                    "devices": bytea_array(
                        self.hashes.device(customer_id, application_code, client_id) for client_id in client_ids
                    ),
                },
            )
            return {row[0]: _reported_of(row) for row in await cursor.fetchall()}


def _reported_of(row: Sequence[Any]) -> Reported:
    _, knows_contact, info_versions, has_set_token, last_seen_at, *others = row
    if knows_contact:
        return Reported(knows_contact=True)
    values = dict(zip(REPORTED_COLUMNS, others, strict=True))
    reported = [*(TOKEN_FIELDS if has_set_token else ()), *_INFO_VERSIONS.decode(info_versions)]
    fields = {"last_seen_at": last_seen_at} | {name: values[name] for name in reported}
    return Reported(knows_contact=False, fields=fields)


@functools.lru_cache(maxsize=4096)
def find_query(customer_id: CustomerId, fields: frozenset[str] | None = None) -> bytes:
    """The query behind `find_by_contact_keys`, with the customer's schema in it."""
    return in_schema(contact_devices_query(fields), customer_id).encode()


@functools.lru_cache(maxsize=4096)
def _reported_query(customer_id: CustomerId) -> bytes:
    return in_schema(_QUERIES["find_reported"], customer_id).encode()


@functools.lru_cache(maxsize=4096)
def _deleted_query(customer_id: CustomerId) -> bytes:
    return in_schema(device_queries("devices")["deleted_contacts"], customer_id).encode()


@functools.lru_cache(maxsize=4096)
def _verdicts_query(customer_id: CustomerId) -> bytes:
    return in_schema(_QUERIES["find_verdicts"], customer_id).encode()
