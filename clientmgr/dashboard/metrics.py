"""Reads the dashboard's numbers, keeps their history, and says what is wrong with them."""

from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row

from clientmgr.sqlfiles import named_queries
from clientmgr.tenants.names import CustomerId

_QUERIES = named_queries("dashboard/queries/metrics.sql")


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
    """A tenant in the table that people look at."""

    customer_id: CustomerId
    status: str
    devices: int | None
    push_enabled_share: float | None
    tokens_invalid_share: float | None
    contacts: int | None
    orphans: int | None
    growth_24h: int | None
    sync_difference_share: float | None
    failure: str | None


def append_history(connection: Connection[Any]) -> int:
    """Add the current numbers to the history; what is there already stays. Returns how many were new."""
    return connection.execute(_QUERIES["append_history"]).rowcount


def summary(connection: Connection[Any]) -> Summary:
    return Summary(*connection.execute(_QUERIES["summary"]).fetchall()[0])


def largest_tenants(connection: Connection[Any], limit: int) -> list[TenantLine]:
    """The largest first; before them those that failed."""
    with connection.cursor(row_factory=class_row(TenantLine)) as cursor:
        return cursor.execute(_QUERIES["largest"], {"limit": limit}).fetchall()


def out_of_sync(connection: Connection[Any], tolerance: float) -> dict[CustomerId, float]:
    """Tenants that differ from DynamoDB by more than the tolerance, the worst first."""
    rows = connection.execute(_QUERIES["out_of_sync"], {"tolerance": tolerance})
    return {CustomerId(customer_id): share for customer_id, share in rows}


def sync_counts(connection: Connection[Any]) -> tuple[int, int]:
    """How many tenants were compared with DynamoDB, and how many could not be."""
    checked, failed = connection.execute(_QUERIES["sync_checked"]).fetchall()[0]
    return checked, failed


def without_history(connection: Connection[Any]) -> list[CustomerId]:
    """Tenants that were active when the numbers were last collected, and whose newest ones are not in the history."""
    return [CustomerId(row[0]) for row in connection.execute(_QUERIES["without_history"])]


def behind_on_migrations(connection: Connection[Any]) -> dict[CustomerId, tuple[int, int]]:
    """Tenants that are not at the newest schema version: (theirs, the newest)."""
    rows = connection.execute(_QUERIES["behind_on_migrations"])
    return {CustomerId(customer_id): (version, head) for customer_id, version, head in rows}
