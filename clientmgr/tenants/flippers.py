"""Flippers: switches in the database that change what running daemons do, for everybody or for one customer.

A customer's own setting beats the global one; without either, a flipper is off. Daemons use a snapshot that is at most
a few seconds old. People change flippers with `clientmgr flippers`, and each change is audited.
"""

import enum
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct
from psycopg import AsyncConnection, Connection
from psycopg.rows import class_row, tuple_row

from clientmgr.audit.log import PLATFORM, AuditEntry, AuditLogger
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.sqlfiles import named_queries
from clientmgr.tenants.registry import require_customer

_QUERIES = named_queries("tenants/queries/flippers.sql")


SettingScope = Literal["any", "all", "own"]
"""Which settings: `all` are those for all customers, `own` those that customers have of their own."""


class Flipper(enum.StrEnum):
    """Every flipper there is. A row of another name, left by another release, changes nothing."""

    USE_POSTGRES_DEVICE_MAPPER = "USE_POSTGRES_DEVICE_MAPPER"
    """The device mapper reads devices from PostgreSQL first. Off: from DynamoDB alone."""
    CLIENT_FETCHER_FALLBACK_DISABLED_PER_CUSTOMER = "CLIENT_FETCHER_FALLBACK_DISABLED_PER_CUSTOMER"
    """It does not ask DynamoDB for contacts that have no device in PostgreSQL. A customer that has both on has left the
    legacy store, and its orphans are deleted."""


class FlipperState(Struct, frozen=True, rename="camel"):
    """A flipper that is set, for one customer or (customerId null) for all."""

    name: str
    customer_id: CustomerId | None
    enabled: bool
    updated_by: str
    updated_at: datetime


class Flippers:
    """All flippers at one moment."""

    def __init__(self, rows: Iterable[tuple[str, int | None, bool]] = ()) -> None:
        self._settings = {(name, customer_id): enabled for name, customer_id, enabled in rows}

    def is_on(self, flipper: Flipper, customer_id: CustomerId) -> bool:
        own = self._settings.get((flipper, customer_id))
        return self._settings.get((flipper, None), False) if own is None else own

    def legacy_store_is_read(self, customer_id: CustomerId, *, fallback_enabled: bool) -> bool:
        """Whether the customer's devices may still come from DynamoDB. `fallback_enabled` is the setting's."""
        return fallback_enabled and not (
            self.is_on(Flipper.USE_POSTGRES_DEVICE_MAPPER, customer_id)
            and self.is_on(Flipper.CLIENT_FETCHER_FALLBACK_DISABLED_PER_CUSTOMER, customer_id)
        )


class FlipperCache:
    """The flippers for a daemon. It reads them again, on the given connection, once they are `refresh_ms` old."""

    def __init__(self, refresh_ms: int) -> None:
        self._refresh_s = refresh_ms / 1000
        self._flippers = Flippers()
        self._fresh_until = 0.0

    async def current(self, connection: AsyncConnection[Any]) -> Flippers:
        if time.monotonic() >= self._fresh_until:
            # Counted from before the read: a change during the read is seen no later than that.
            fresh_until = time.monotonic() + self._refresh_s
            async with connection.cursor(row_factory=tuple_row) as cursor:
                await cursor.execute(_QUERIES["all"])
                self._flippers = Flippers(await cursor.fetchall())
            self._fresh_until = fresh_until
        return self._flippers


def read_flippers(connection: Connection[Any], customer_id: CustomerId | None = None) -> Flippers:
    """As they are now; with a customer: those that matter to it."""
    return Flippers((one.name, one.customer_id, one.enabled) for one in list_settings(connection, customer_id))


def list_settings(
    connection: Connection[Any], customer_id: CustomerId | None = None, *, scope: SettingScope = "any"
) -> Iterator[FlipperState]:
    """All that is set, by name; for one customer: its own rows and the global ones."""
    with connection.cursor(row_factory=class_row(FlipperState)) as cursor:
        yield from cursor.execute(_QUERIES["list"], {"customer_id": customer_id, "scope": scope})


def set_flipper(
    connection: Connection[Any],
    audit: AuditLogger,
    flipper: Flipper,
    customer_id: CustomerId | None,
    *,
    enabled: bool,
    actor: str,
) -> bool:
    """Turn a flipper on or off in the caller's transaction. False: it was like that already, so nothing is recorded."""
    if customer_id is not None:
        require_customer(connection, customer_id)
    parameters = {"name": flipper, "customer_id": customer_id, "enabled": enabled, "updated_by": actor}
    changed = connection.execute(_QUERIES["set"], parameters).fetchone() is not None
    if changed:
        outcome = "on" if enabled else "off"
        audit.append(connection, [_entry(flipper, customer_id, actor, "flipper.set", outcome)])
    return changed


def unset_flipper(
    connection: Connection[Any], audit: AuditLogger, flipper: Flipper, customer_id: CustomerId | None, *, actor: str
) -> bool:
    """Remove a setting, so that the next wider one counts. False: there was none."""
    removed = connection.execute(_QUERIES["unset"], {"name": flipper, "customer_id": customer_id}).fetchone()
    if removed is not None:
        audit.append(connection, [_entry(flipper, customer_id, actor, "flipper.unset", "unset")])
    return removed is not None


def _entry(flipper: Flipper, customer_id: CustomerId | None, actor: str, action: str, outcome: str) -> AuditEntry:
    chain = PLATFORM if customer_id is None else customer_id
    return AuditEntry(chain, actor, action, outcome, details={"flipper": str(flipper)})
