"""Tables of ours that name devices without keeping messages: what batch work found, and what differed from DynamoDB."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from psycopg import Connection
from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from clientmgr.base.customer_ids import CustomerId, in_schema
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.erasure.deletions import GONE_MEANWHILE, Lookup, tenants_with_hashes

QUERIES = named_queries("erasure/queries/other_places.sql")

STAGED: Final = (
    "orphan_candidates_staged",
    "deleted_contacts_staged",
    "dashboard_tenant_metrics_staged",
    "legacy_devices_staged",
    "legacy_devices",
)
"""What tasks of Spark left behind, and what an import that was given up did. Whatever is used is gone within hours."""


def sweep(connection: Connection[Any], settings: Settings, lookup: Lookup) -> Iterator[tuple[str, int]]:
    """How many rows or names went, by table."""
    tenants = set(tenants_with_hashes(connection))
    for (customer,) in _rows(connection, QUERIES["customers_with_candidates"]):
        if customer in tenants:
            yield "orphan_candidates", _forget_candidates(connection, customer)
    for customer, differences in _rows(connection, QUERIES["sync_differences"]):
        if customer in lookup.standing.tenants:
            yield "dashboard_tenant_metrics", _forget_differences(connection, lookup, customer, differences)
    for table in STAGED:
        keep = timedelta(hours=settings.erasure_hours / 2)
        yield table, connection.execute(QUERIES[f"forget_{table}"], {"keep": keep}).rowcount


def _forget_candidates(connection: Connection[Any], customer: CustomerId) -> int:
    try:
        statement = in_schema(QUERIES["forget_candidates"], customer).encode()
        return connection.execute(statement, {"customer_id": customer}, prepare=False).rowcount
    except GONE_MEANWHILE:
        return 0  # its account is being deleted


def _forget_differences(
    connection: Connection[Any], lookup: Lookup, customer: CustomerId, differences: list[dict[str, Any]]
) -> int:
    """Remove the names of devices that are deleted, and not here again. That they differed stays."""
    named = {(str(one.get("application_code", "")), str(one.get("client_id", ""))) for one in differences}
    gone = {device for device, found in lookup.gone_devices(connection, customer, named).items() if not found.exists}
    if not gone:
        return 0
    left = [
        {name: value for name, value in one.items() if name != "client_id"}
        if (str(one.get("application_code", "")), str(one.get("client_id", ""))) in gone
        else one
        for one in differences
    ]
    connection.execute(
        QUERIES["replace_differences"], {"customer_id": customer, "was": Jsonb(differences), "differences": Jsonb(left)}
    )
    return len(gone)


def _rows(connection: Connection[Any], query: str) -> list[tuple[Any, ...]]:
    with connection.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(query.encode()).fetchall()
