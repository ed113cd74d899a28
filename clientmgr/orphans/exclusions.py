"""Customers whose orphans are never deleted, because an operator said so while the system runs. Changes are audited.

ORPHAN_EXCLUDED_CUSTOMERS excludes customers too. Those can't be included again here.
"""

from datetime import datetime
from typing import Any

from msgspec import Struct
from psycopg import Connection
from psycopg.rows import class_row

from clientmgr.audit.log import AuditEntry, AuditLogger
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.sqlfiles import named_queries
from clientmgr.tenants.registry import require_customer

_QUERIES = named_queries("orphans/queries/exclusions.sql")


class ExclusionRow(Struct, frozen=True, rename="camel"):
    """A customer whose orphans are never deleted."""

    customer_id: CustomerId
    reason: str
    updated_by: str
    updated_at: datetime | None
    """Null: by the setting ORPHAN_EXCLUDED_CUSTOMERS."""


def list_exclusions(connection: Connection[Any]) -> list[ExclusionRow]:
    with connection.cursor(row_factory=class_row(ExclusionRow)) as cursor:
        return cursor.execute(_QUERIES["list"]).fetchall()


def is_excluded(connection: Connection[Any], customer_id: CustomerId) -> bool:
    return bool(connection.execute(_QUERIES["is_excluded"], {"customer_id": customer_id}).fetchall()[0][0])


def exclude(
    connection: Connection[Any], audit: AuditLogger, customer_id: CustomerId, *, reason: str, actor: str
) -> bool:
    """Keep the customer's orphans from now on, in the caller's transaction. False: they were excluded already."""
    require_customer(connection, customer_id)
    parameters = {"customer_id": customer_id, "reason": reason, "updated_by": actor}
    changed = connection.execute(_QUERIES["exclude"], parameters).fetchone() is not None
    if changed:
        details = {"reason": reason}
        audit.append(connection, [AuditEntry(customer_id, actor, "orphans.exclude", "excluded", details=details)])
    return changed


def include(connection: Connection[Any], audit: AuditLogger, customer_id: CustomerId, *, actor: str) -> bool:
    """Let the customer's orphans be deleted again. False: they were not excluded here."""
    removed = connection.execute(_QUERIES["include"], {"customer_id": customer_id}).fetchone() is not None
    if removed:
        audit.append(connection, [AuditEntry(customer_id, actor, "orphans.include", "included")])
    return removed
