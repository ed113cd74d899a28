"""The numbers that Spark collected of each tenant: their summary, their history, and what is wrong with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.sqlfiles import named_queries

_QUERIES = named_queries("tenant_metrics/queries/metrics.sql")


@dataclass(frozen=True, slots=True)
class Summary:
    """All tenants together."""

    tenants: int
    failed: int
    devices: int
    orphans: int
    table_bytes: int


@dataclass(frozen=True, slots=True)
class TenantLine:
    """A tenant's row in the table that Dagster shows."""

    customer_id: CustomerId
    status: str
    devices: int | None
    push_enabled_share: float | None
    tokens_invalid_share: float | None
    contacts: int | None
    orphans: int | None
    growth_24h: int | None
    sync_status: str
    sync_difference_share: float | None
    failure: str | None


@dataclass(frozen=True, slots=True)
class SyncCounts:
    """How many tenants were compared with DynamoDB, could not be compared, or did not have to be."""

    checked: int
    failed: int
    not_checked: int


@dataclass(frozen=True, slots=True)
class SyncDifference:
    """A device of a tenant's sample that differs from DynamoDB. Only the table says which device it is."""

    customer_id: CustomerId
    application_code: str
    difference: str
    fields: list[str]


def append_history(connection: Connection[Any], customers: Sequence[CustomerId]) -> int:
    """Add these tenants' current numbers to the history. Returns how many were new."""
    return connection.execute(_QUERIES["append_history"], {"customers": list(customers)}).rowcount


def summary(connection: Connection[Any]) -> Summary:
    return Summary(*connection.execute(_QUERIES["summary"]).fetchall()[0])


def lines_of(connection: Connection[Any], customers: Sequence[CustomerId]) -> list[TenantLine]:
    """These tenants' current numbers: those that failed, then the largest."""
    with connection.cursor(row_factory=class_row(TenantLine)) as cursor:
        return cursor.execute(_QUERIES["lines"], {"customers": list(customers)}).fetchall()


def out_of_sync(connection: Connection[Any], tolerance: float) -> dict[CustomerId, float]:
    """Tenants that differ from DynamoDB by more than the tolerance, the worst first."""
    rows = connection.execute(_QUERIES["out_of_sync"], {"tolerance": tolerance})
    return {CustomerId(customer_id): share for customer_id, share in rows}


def sync_counts(connection: Connection[Any]) -> SyncCounts:
    return SyncCounts(*connection.execute(_QUERIES["sync_checked"]).fetchall()[0])


def sync_failures(connection: Connection[Any], limit: int) -> dict[CustomerId, str]:
    """Tenants that could not be compared with DynamoDB, and why."""
    rows = connection.execute(_QUERIES["sync_failures"], {"limit": limit})
    return {CustomerId(customer_id): why for customer_id, why in rows}


def sync_differences(connection: Connection[Any], limit: int) -> list[SyncDifference]:
    """Devices that differ from DynamoDB, of the tenants that differ most."""
    rows = connection.execute(_QUERIES["sync_differences"], {"limit": limit})
    return [SyncDifference(*row) for row in rows]


def without_history(connection: Connection[Any]) -> list[CustomerId]:
    """Active tenants whose newest numbers are not in the history."""
    return [CustomerId(row[0]) for row in connection.execute(_QUERIES["without_history"])]


def behind_on_migrations(connection: Connection[Any]) -> dict[CustomerId, tuple[int, int]]:
    """Tenants that are not at the newest schema version: (theirs, the newest)."""
    rows = connection.execute(_QUERIES["behind_on_migrations"])
    return {CustomerId(customer_id): (version, head) for customer_id, version, head in rows}
