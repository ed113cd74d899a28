"""Deletes the keyed hashes of what was deleted, once nothing can bring its events back (TOMBSTONE_DAYS).

An import from the legacy store brings items of any age, every night. So of customers that are being imported the
tombstones stay.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

from psycopg import Connection

from clientmgr.base.customer_ids import CustomerId, in_schema
from clientmgr.base.portions import portions
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.erasure.deletions import GONE_MEANWHILE, TENANTS_A_CONNECTION, tenants_with_hashes
from clientmgr.legacy_migration.imported_customers import customers_being_imported

QUERIES = named_queries("erasure/queries/hash_expiry.sql")

ROWS_A_TRANSACTION: Final = 5000

TOMBSTONES: Final = ("device_tombstones", "contact_tombstones")
STEPS: Final = (
    *TOMBSTONES,
    "links_to_gone_contacts",
    "links_of_gone_devices",
    "repeated_links",
    "claims_of_gone_devices",
    "merges",
    "verdicts",
)
"""In this order: links and claims stay as long as their device's tombstone does, and merges as long as their links."""


def expire(connect: Callable[[], Connection[Any]], settings: Settings) -> Iterator[int]:
    """How many rows went, by transaction."""
    parameters = {
        "keep": timedelta(days=settings.tombstone_days),
        "keep_verdicts": timedelta(days=settings.push_token_verdict_days),
        "most": ROWS_A_TRANSACTION,
    }
    with connect() as connection:
        tenants = tenants_with_hashes(connection)
        imported = customers_being_imported(connection)
    for portion in portions(tenants, TENANTS_A_CONNECTION):
        with connect() as connection:
            for customer in portion:
                steps = STEPS[len(TOMBSTONES) :] if customer in imported else STEPS
                yield from _expire_tenant(connection, customer, steps, parameters)


def _expire_tenant(
    connection: Connection[Any], customer: CustomerId, steps: Sequence[str], parameters: dict[str, Any]
) -> Iterator[int]:
    for step in steps:
        statement = in_schema(QUERIES[step], customer).encode()
        while True:
            try:
                deleted = connection.execute(statement, parameters, prepare=False).rowcount
            except GONE_MEANWHILE:
                return  # its account is being deleted
            if deleted:
                yield deleted
            if deleted < ROWS_A_TRANSACTION:
                break
