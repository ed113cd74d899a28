"""Finds devices for support people: by contact, client or hardware, and all of them. Read only."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from psycopg import Connection
from psycopg.rows import dict_row

from clientmgr.base.customer_ids import CustomerId, in_schema
from clientmgr.base.masking import mask, masked
from clientmgr.contracts.device_fields import FIELDS, with_fields
from clientmgr.devices.queries import device_queries, export_columns
from clientmgr.tenants.registry import ensure_usable, find_tenant

EXPORT_ROWS_AT_ONCE = 5000
SECRET_EXPORT_COLUMNS = tuple(column for field in FIELDS if field.masked for column in export_columns(field))
_MASKED_COLUMNS = tuple(field.name for field in FIELDS if field.masked)


@with_fields(FIELDS, lambda field: (field.name, Any, None))
class StoredDevice(Struct, frozen=True):
    """A row of `devices`: the columns that code names, and all others."""

    application_code: str
    client_id: str
    device_hash: bytes | None
    contact_id: int | None
    contact_version: int
    platform: str | None
    provider: str
    application_version: str | None
    device_model: str | None
    language: str | None
    push_enabled: bool | None
    info_versions: Mapping[str, int]
    push_token: str | None
    push_token_kind: str | None
    push_token_status: str
    push_token_version: int
    push_token_status_version: int
    push_token_hash: bytes | None
    web_push: Mapping[str, Any] | None
    orphaned_since: datetime | None
    last_seen_at: datetime | None
    created_at: datetime
    updated_at: datetime

    def masked(self) -> "StoredDevice":
        """The same without what would let somebody else push to the device."""
        return replace(self, **{name: masked(getattr(self, name), secret=True) for name in _MASKED_COLUMNS})


def application_codes(connection: Connection[Any], customer_id: CustomerId) -> set[str]:
    """The applications that a tenant has devices of: one index look-up for each."""
    query = in_schema(device_queries("lookup")["applications"], customer_id).encode()
    return {code for (code,) in connection.execute(query, prepare=False)}


class DeviceLookup:
    """Answers questions about one tenant's devices. Raises where the customer is none of ours (any more)."""

    def __init__(self, connection: Connection[Any], customer_id: CustomerId) -> None:
        tenant = find_tenant(connection, customer_id)
        ensure_usable(customer_id, None if tenant is None else tenant.status)
        self._connection = connection
        queries = device_queries("lookup")
        self._queries = {name: in_schema(sql, customer_id).encode() for name, sql in queries.items()}

    def rows(self, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """What a query of `lookup.sql` finds."""
        return self._connection.execute(self._queries[query], parameters).fetchall()

    def by_contact(self, contact_id: int, *, limit: int) -> list[StoredDevice]:
        return self.devices("by_contact", contact_id=contact_id, limit=limit)

    def by_client(self, client_id: str, *, limit: int) -> list[StoredDevice]:
        return self.devices("by_client", client_id=client_id, limit=limit)

    def by_hardware(self, hardware_id: str, *, limit: int) -> list[StoredDevice]:
        return self.devices("by_hardware", hardware_id=hardware_id, limit=limit)

    def contact_with_most_devices(self) -> int | None:
        row = self._connection.execute(self._queries["contact_with_most_devices"]).fetchone()
        return None if row is None else int(row[0])

    def some_contacts(self, *, limit: int) -> list[int]:
        """Contacts that have devices, the lowest ids first."""
        rows = self._connection.execute(self._queries["some_contacts"], {"limit": limit}).fetchall()
        return [int(row[0]) for row in rows]

    def estimated_count(self) -> int:
        """About how many devices there are; 0: nobody has counted yet."""
        ((count,),) = self._connection.execute(self._queries["estimated_count"]).fetchall()
        return int(count)

    def last_write(self, *, at_most: int) -> datetime | None:
        """When a device was last written; None: none is, or there are more than `at_most` to look at."""
        ((last,),) = self.rows("last_write") if self.estimated_count() <= at_most else [(None,)]
        found: datetime | None = last
        return found

    def export(self, *, reveal: bool) -> tuple[list[str], Iterator[list[tuple[Any, ...]]]]:
        """Column names, and all devices in portions, read through a cursor on the server: memory stays the same."""
        cursor = self._connection.cursor(name="export_devices")
        cursor.execute(self._queries["export"])
        columns = [column.name for column in cursor.description or ()]
        secret = frozenset(map(columns.index, () if reveal else SECRET_EXPORT_COLUMNS))

        def portions() -> Iterator[list[tuple[Any, ...]]]:
            with cursor:
                while rows := cursor.fetchmany(EXPORT_ROWS_AT_ONCE):
                    yield [_without(row, secret) for row in rows] if secret else rows

        return columns, portions()

    def devices(self, query: str, **parameters: Any) -> list[StoredDevice]:
        with self._connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(self._queries[query], parameters)
            names = StoredDevice.__struct_fields__
            return [StoredDevice(*map(row.__getitem__, names)) for row in cursor]


def _without(row: tuple[Any, ...], secret: frozenset[int]) -> tuple[Any, ...]:
    values = list(row)
    for place in secret:
        values[place] = mask(values[place])
    return tuple(values)
