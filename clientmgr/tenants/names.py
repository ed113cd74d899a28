"""What people call a customer: for display and search. Each change is audited. It goes when the account is deleted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection
from psycopg.rows import class_row

from clientmgr.audit.log import AuditEntry, AuditLogger
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import InvalidInputError
from clientmgr.base.sqlfiles import named_queries
from clientmgr.tenants.registry import require_customer

_QUERIES = named_queries("tenants/queries/names.sql")

LONGEST: Final = 100


@dataclass(frozen=True, slots=True)
class FoundTenant:
    customer_id: CustomerId
    name: str | None
    status: str


def checked_name(text: str) -> str:
    """As it is kept: without spaces around it. Empty: none."""
    name = text.strip()
    if len(name) > LONGEST or not name.isprintable():
        raise InvalidInputError("name", f"at most {LONGEST} printable characters", text)
    return name


def rename_tenant(
    connection: Connection[Any], audit: AuditLogger, customer_id: CustomerId, name: str, *, actor: str
) -> bool:
    """Call a customer so in the caller's transaction; by an empty name, no more. False: it was so already."""
    name = checked_name(name)
    require_customer(connection, customer_id)
    wanted = {"customer_id": customer_id, "name": name, "named_by": actor}
    changed = connection.execute(_QUERIES["set" if name else "remove"], wanted).fetchone() is not None
    if changed:
        # Not the name: the audit log outlives the customer, and may not be changed.
        outcome = "named" if name else "name removed"
        audit.append(connection, [AuditEntry(customer_id, actor, "tenant.rename", outcome)])
    return changed


def names_of(connection: Connection[Any], customer_ids: Sequence[CustomerId] | None = None) -> dict[CustomerId, str]:
    """Of these customers, or of all."""
    wanted = {"customer_ids": None if customer_ids is None else list(customer_ids)}
    return {CustomerId(customer_id): name for customer_id, name in connection.execute(_QUERIES["names"], wanted)}


def find_tenants_by_name(connection: Connection[Any], text: str, *, limit: int) -> list[FoundTenant]:
    """By id, by its beginning, or by a part of the name."""
    with connection.cursor(row_factory=class_row(FoundTenant)) as cursor:
        return cursor.execute(_QUERIES["find"], {"text": text, "limit": limit}).fetchall()
