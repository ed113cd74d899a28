"""Who is a customer: reads `clientmgr.tenants`. The schema manager alone changes it."""

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import TenantUnavailableError, UnknownTenantError
from clientmgr.base.sqlfiles import named_queries

_QUERIES = named_queries("tenants/queries/tenants.sql")


class TenantStatus(enum.StrEnum):
    """Where a tenant is in its life."""

    ACTIVATING = "activating"
    ACTIVE = "active"
    DELETING = "deleting"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Tenant:
    """A registered customer."""

    customer_id: CustomerId
    status: str
    schema_version: int
    schema_digest: str
    activated_at: datetime | None
    deleted_at: datetime | None


def find_tenant(connection: Connection[Any], customer_id: CustomerId) -> Tenant | None:
    with connection.cursor(row_factory=class_row(Tenant)) as cursor:
        return cursor.execute(_QUERIES["get"], {"customer_id": customer_id}).fetchone()


def find_tenants(connection: Connection[Any], customer_ids: Sequence[CustomerId]) -> list[Tenant]:
    """Those of the customers that are registered, in the order of their ids."""
    with connection.cursor(row_factory=class_row(Tenant)) as cursor:
        return cursor.execute(_QUERIES["find"], {"customer_ids": list(customer_ids)}).fetchall()


def list_tenants(connection: Connection[Any], status: TenantStatus | None = None) -> Iterator[Tenant]:
    with connection.cursor(row_factory=class_row(Tenant)) as cursor:
        yield from cursor.execute(_QUERIES["list"], {"status": status})


def lock_tenants(connection: Connection[Any], customer_ids: Sequence[CustomerId]) -> list[Tenant]:
    """Those of the customers that are registered; their rows stay locked until the caller's transaction ends."""
    with connection.cursor(row_factory=class_row(Tenant)) as cursor:
        return cursor.execute(_QUERIES["lock"], {"customer_ids": list(customer_ids)}).fetchall()


def count_by_status(connection: Connection[Any]) -> dict[TenantStatus, int]:
    counted = {TenantStatus(status): count for status, count in connection.execute(_QUERIES["status_counts"])}
    return {status: counted.get(status, 0) for status in TenantStatus}


def ensure_usable(customer_id: CustomerId, status: str | None) -> None:
    """Raise where an event for this tenant must wait (it is being activated) or fail for good (it is deleted)."""
    match status:
        case TenantStatus.ACTIVE:
            return
        case TenantStatus.ACTIVATING:
            raise TenantUnavailableError(f"customer {customer_id} is still being activated")
        case TenantStatus.DELETING | TenantStatus.DELETED:
            raise UnknownTenantError(f"customer {customer_id} is deleted")
        case _:
            raise UnknownTenantError(f"customer {customer_id} was never activated")


def require_customer(connection: Connection[Any], customer_id: CustomerId) -> None:
    """Raise where there is no such customer: most likely somebody mistyped the id."""
    tenant = find_tenant(connection, customer_id)
    if tenant is None or tenant.status == TenantStatus.DELETED:
        raise UnknownTenantError(f"customer {customer_id} {'was never activated' if tenant is None else 'is deleted'}")
