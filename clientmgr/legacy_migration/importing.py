"""Imports a customer's scanned items into its tables, page by page, and compares both stores afterwards.

A page and the note of how far the import has come are one transaction: after a kill it goes on where it was. What an
import would change, if it were done once more, is the difference between the stores.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from psycopg import AsyncConnection, Connection
from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import TransientError
from clientmgr.base.sqlfiles import named_queries
from clientmgr.base.stopping import StillWanted, always_wanted, ensure_wanted
from clientmgr.contracts.decoding import InvalidMessageError
from clientmgr.devices.store import DeviceStore
from clientmgr.legacy_migration.events import ImportedDevice, StoredItem, UnnameableError, read_item, reason_of

QUERIES: Final = named_queries("legacy_migration/queries/importing.sql")
ITEMS_A_PAGE: Final = 500

BEGINNING: Final = ("", "")

Progress = Callable[[int], None]
"""Told how many items of the customer are done."""


@dataclass(slots=True)
class Page:
    """Some items, read."""

    last: StoredItem
    devices: list[ImportedDevice] = field(default_factory=list)
    passed_over: int = 0
    rejections: Counter[str] = field(default_factory=Counter)

    @property
    def items(self) -> int:
        return len(self.devices) + self.passed_over + self.rejections.total()


@dataclass(frozen=True, slots=True)
class Scan:
    """What the last scan of a customer found, and how far its import has come."""

    scanned_at: datetime
    items: int
    imported_through: tuple[str, str]
    is_imported: bool


class ScanGoneError(TransientError):
    """Not all items of the scan are there: an erasure sweep or another run has removed them."""

    def __init__(self, customer_id: CustomerId) -> None:
        super().__init__(
            f"the scanned items of customer {customer_id} are gone: materialise legacy_devices for it again"
        )


@dataclass(frozen=True)
class LegacyImport:
    """Works on a connection of its own. Live events go on meanwhile: a page holds the tenant's write lock briefly."""

    database: Database
    store: DeviceStore
    still_wanted: StillWanted = always_wanted
    items_a_page: int = ITEMS_A_PAGE

    async def run(self, customer_id: CustomerId, on_progress: Progress = lambda _: None) -> None:
        """Import what the last scan found and is not imported yet, compare, and forget the items."""
        async with await self.database.connect_async(Role.WRITER) as connection:
            scan = await _scan(connection, customer_id)
            if scan is None:
                raise ScanGoneError(customer_id)
            if not scan.is_imported:
                await self._import(connection, customer_id, scan, on_progress)
            await self._compare(connection, customer_id, scan)

    async def _import(
        self,
        connection: AsyncConnection[Any],
        customer_id: CustomerId,
        scan: Scan,
        on_progress: Progress,
    ) -> None:
        done = 0
        named = {"customer_id": customer_id, "scanned_at": scan.scanned_at}
        async for page in self._pages(connection, customer_id, scan.imported_through):
            ensure_wanted(self.still_wanted, f"{done} items of customer {customer_id} are imported")
            verdicts = [device.verdict for device in page.devices if device.verdict is not None]
            if verdicts:
                await self.store.apply_verdicts(connection, {customer_id: verdicts})
            if page.devices:
                await self.store.apply_events(connection, {customer_id: _events(page)})
            noted = await connection.execute(
                QUERIES["advance"],
                {
                    **named,
                    "device_key": page.last.device_key,
                    "contact_id": page.last.contact_id,
                    "imported": len(page.devices),
                    "passed_over": page.passed_over,
                    "rejected": page.rejections.total(),
                    "rejections": Jsonb(dict(page.rejections)),
                },
            )
            if not noted.rowcount:
                # Another run has scanned anew, and imports what it found.
                await connection.rollback()
                raise ScanGoneError(customer_id)
            await connection.commit()
            done += page.items
            on_progress(done)
        finished = await connection.execute(QUERIES["finish"], named)
        if not finished.rowcount:
            raise ScanGoneError(customer_id)
        await connection.commit()

    async def _compare(self, connection: AsyncConnection[Any], customer_id: CustomerId, scan: Scan) -> None:
        compared, different, fields = 0, 0, Counter[str]()
        async for page in self._pages(connection, customer_id, BEGINNING):
            ensure_wanted(self.still_wanted, f"customer {customer_id} is imported and not compared")
            compared += page.items
            if page.devices:
                changes = await self.store.changes_by(connection, customer_id, _events(page))
                different += len(changes)
                for of_device in changes.values():
                    fields.update(of_device)
            await connection.rollback()  # nothing was written; the tenant's write lock goes
        if compared != scan.items:
            raise ScanGoneError(customer_id)
        recorded = {"customer_id": customer_id, "scanned_at": scan.scanned_at}
        await connection.execute(
            QUERIES["record_check"], recorded | {"different": different, "different_fields": Jsonb(dict(fields))}
        )
        await connection.execute(QUERIES["forget_items"], recorded)
        await connection.commit()

    async def _pages(
        self, connection: AsyncConnection[Any], customer_id: CustomerId, after: tuple[str, str]
    ) -> AsyncIterator[Page]:
        while True:
            items = await _items(connection, customer_id, after, self.items_a_page)
            if not items:
                return
            page = read_page(customer_id, items, now_ms=time.time_ns() // 1_000_000)
            yield page
            after = page.last.device_key, page.last.contact_id


def unfinished_scans(
    connection: Connection[Any], customers: Sequence[CustomerId], *, younger_than: timedelta
) -> set[CustomerId]:
    """Customers whose last scan is still to be imported or compared: a run that was killed goes on with it."""
    wanted = {"customers": list(customers), "younger_than": younger_than}
    return {CustomerId(row[0]) for row in connection.execute(QUERIES["unfinished"], wanted)}


def read_page(customer_id: CustomerId, items: Sequence[StoredItem], *, now_ms: int) -> Page:
    """What can be imported of these items, and why the others can't. Pure."""
    page = Page(items[-1])
    for item in items:
        try:
            page.devices.append(read_item(customer_id, item, now_ms=now_ms))
        except UnnameableError:
            page.passed_over += 1
        except InvalidMessageError as error:
            page.rejections[reason_of(error)] += 1
    return page


def _events(page: Page) -> list[Any]:
    return [event for device in page.devices for event in device.events]


async def _scan(connection: AsyncConnection[Any], customer_id: CustomerId) -> Scan | None:
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(QUERIES["progress"], {"customer_id": customer_id})
        row = await cursor.fetchone()
    if row is None:
        return None
    scanned_at, items, device_key, contact_id, imported_at = row
    return Scan(scanned_at, items, (device_key or "", contact_id or ""), imported_at is not None)


async def _items(
    connection: AsyncConnection[Any], customer_id: CustomerId, after: tuple[str, str], limit: int
) -> list[StoredItem]:
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(
            QUERIES["page"],
            {"customer_id": customer_id, "after_device_key": after[0], "after_contact_id": after[1], "limit": limit},
        )
        return [StoredItem(*row) for row in await cursor.fetchall()]
