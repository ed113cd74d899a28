"""Customers whose orphans are not deleted: those that somebody excluded, and those still read from the legacy store.

In the legacy store a device may have a contact that nobody reported to PostgreSQL. Here it would look like an orphan,
and once deleted, its tombstone would hide that link too. So while the device mapper may read DynamoDB for a customer,
the customer has no orphans.
"""

from collections.abc import Iterable
from typing import Any

from psycopg import Connection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.orphans.exclusions import is_excluded
from clientmgr.orphans.policy import OrphanPolicy, Outcome
from clientmgr.tenants.flippers import read_flippers


def why_left_out(connection: Connection[Any], policy: OrphanPolicy, customer_id: CustomerId) -> Outcome | None:
    """As it stands at this moment; None: the customer's orphans may be deleted."""
    if customer_id in policy.excluded or is_excluded(connection, customer_id):
        return Outcome.EXCLUDED
    return Outcome.LEGACY if legacy_customers(connection, policy, [customer_id]) else None


def legacy_customers(
    connection: Connection[Any], policy: OrphanPolicy, customers: Iterable[CustomerId]
) -> frozenset[CustomerId]:
    """Those of the customers that are still read from the legacy store."""
    wanted = list(customers)
    flippers = read_flippers(connection, wanted[0] if len(wanted) == 1 else None)
    return frozenset(
        customer_id
        for customer_id in wanted
        if flippers.legacy_store_is_read(customer_id, fallback_enabled=policy.fallback_enabled)
    )
