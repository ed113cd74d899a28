"""What the dashboard shows of tenants: the table, one tenant's numbers and their history. Reads only."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

from msgspec import Struct
from psycopg import Connection
from psycopg.rows import class_row, dict_row

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.sqlfiles import named_queries

_QUERIES = named_queries("tenant_metrics/queries/tenants.sql")

SortColumn = Literal[
    "customerId",
    "status",
    "schemaVersion",
    "devices",
    "contacts",
    "pushEnabledShare",
    "tokensValidShare",
    "tokensInvalidShare",
    "orphans",
    "growth24h",
    "growth7d",
    "lastWriteAt",
    "tableBytes",
    "syncDifferenceShare",
    "collectedAt",
]
StatusFilter = Literal["present", "any", "activating", "active", "deleting", "deleted"]
Show = Literal["all", "failed", "behind", "out-of-sync", "never-written", "not-collected"]

_COLUMN: Final[Mapping[SortColumn, str]] = {
    "customerId": "customer_id",
    "status": "status",
    "schemaVersion": "schema_version",
    "devices": "devices",
    "contacts": "contacts",
    "pushEnabledShare": "push_enabled_share",
    "tokensValidShare": "tokens_valid_share",
    "tokensInvalidShare": "tokens_invalid_share",
    "orphans": "orphans",
    "growth24h": "growth_24h",
    "growth7d": "growth_7d",
    "lastWriteAt": "last_write_at",
    "tableBytes": "table_bytes",
    "syncDifferenceShare": "sync_difference_share",
    "collectedAt": "collected_at",
}


class TenantRow(Struct, frozen=True, rename="camel"):
    """A tenant in the table. What is None was not counted yet."""

    customer_id: int
    name: str | None
    """What people call it."""
    status: str
    schema_version: int
    head_version: int
    activated_at: datetime | None
    deleted_at: datetime | None
    collected_at: datetime | None
    collection: str | None
    """`ok` or `failed`; None: nobody has counted."""
    failure: str | None
    devices: int | None
    contacts: int | None
    push_enabled_share: float | None
    tokens_valid_share: float | None
    tokens_invalid_share: float | None
    orphans: int | None
    growth_24h: int | None
    growth_7d: int | None
    last_write_at: datetime | None
    table_bytes: int | None
    sync_status: str
    sync_difference_share: float | None


class SampledDifference(Struct, frozen=True, rename="camel"):
    """A device of the sample that is not the same in both stores. No values: fields by name."""

    application_code: str
    client_id: str
    difference: str
    fields: list[str] = []


class TenantNumbers(Struct, frozen=True, rename="camel"):
    """What was counted of a tenant, besides what the table shows."""

    collected_at: datetime
    run_id: str
    devices_by_platform: dict[str, int] | None
    devices_by_provider: dict[str, int] | None
    push_enabled: int | None
    tokens_none: int | None
    tokens_valid: int | None
    tokens_invalid: int | None
    tokens_superseded: int | None
    tokens_none_share: float | None
    tokens_superseded_share: float | None
    linked_devices: int | None
    without_contact: int | None
    created_24h: int | None
    created_7d: int | None
    sync_dynamodb_devices: int | None
    sync_sampled: int | None
    sync_missing_in_dynamodb: int | None
    sync_missing_in_postgres: int | None
    sync_different: int | None
    sync_different_fields: dict[str, int] | None
    sync_failure: str | None
    """Why the stores could not be compared."""
    sync_differences: list[SampledDifference] | None


class HistoryPoint(Struct, frozen=True, rename="camel"):
    """One collection of a tenant's numbers."""

    collected_at: datetime
    devices: int | None
    devices_by_platform: dict[str, int] | None
    push_enabled_share: float | None
    tokens_valid_share: float | None
    tokens_invalid_share: float | None
    tokens_none_share: float | None
    tokens_superseded_share: float | None
    contacts: int | None
    orphans: int | None
    sync_difference_share: float | None


class OrphanState(Struct, frozen=True, rename="camel"):
    """When a tenant's orphans were looked for, and what became of them."""

    searched_at: datetime | None
    candidates: int | None
    threshold_days: float | None
    outcome: str | None
    deleted: int | None
    spared: int | None
    error: str | None
    finished_at: datetime | None


class Totals(Struct, frozen=True, rename="camel"):
    """All tenants together, as they were last counted."""

    devices: int
    contacts: int
    orphans: int
    table_bytes: int
    failed: int
    out_of_sync: int
    sync_checked: int
    collected_at: datetime | None


class TenantFilter(Struct, frozen=True):
    """Which tenants are meant."""

    tolerance: float
    """A difference from DynamoDB beyond this is out of sync."""
    search: str | None = None
    """The beginning of a customer id, or a part of the name."""
    status: StatusFilter = "present"
    show: Show = "all"
    customer_id: CustomerId | None = None

    def parameters(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


def count_tenants(connection: Connection[Any], chosen: TenantFilter) -> int:
    return int(connection.execute(_over_chosen("count"), chosen.parameters()).fetchall()[0][0])


def tenant_page(
    connection: Connection[Any],
    chosen: TenantFilter,
    *,
    sort: SortColumn,
    descending: bool,
    limit: int,
    offset: int,
) -> list[TenantRow]:
    """A part of the table. What is not known stands last, whichever way it is sorted."""
    direction = "DESC" if descending else "ASC"
    order = f"{_COLUMN[sort]} {direction} NULLS LAST, customer_id {direction}"
    query = _over_chosen("page").replace(":order", order)
    with connection.cursor(row_factory=class_row(TenantRow)) as cursor:
        cursor.execute(query.encode(), {**chosen.parameters(), "limit": limit, "offset": offset})
        return cursor.fetchall()


def find_row(connection: Connection[Any], customer_id: CustomerId, *, tolerance: float) -> TenantRow | None:
    chosen = TenantFilter(tolerance, status="any", customer_id=customer_id)
    found = tenant_page(connection, chosen, sort="customerId", descending=False, limit=1, offset=0)
    return found[0] if found else None


def find_numbers(connection: Connection[Any], customer_id: CustomerId) -> TenantNumbers | None:
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(_QUERIES["numbers"], {"customer_id": customer_id}).fetchone()
    if row is None:
        return None
    differences = row.pop("sync_differences")
    sampled = None if differences is None else [SampledDifference(**one) for one in differences]
    return TenantNumbers(**row, sync_differences=sampled)


def history(
    connection: Connection[Any],
    customer_id: CustomerId,
    *,
    days: int,
    limit: int,
    before: datetime | None = None,
) -> list[HistoryPoint]:
    """Collections of the last `days`, the newest first."""
    wanted = {"customer_id": customer_id, "days": days, "limit": limit, "before": before}
    with connection.cursor(row_factory=class_row(HistoryPoint)) as cursor:
        return cursor.execute(_QUERIES["history"], wanted).fetchall()


def orphans_of(connection: Connection[Any], customer_id: CustomerId) -> OrphanState:
    with connection.cursor(row_factory=class_row(OrphanState)) as cursor:
        return cursor.execute(_QUERIES["orphans_of"], {"customer_id": customer_id}).fetchall()[0]


def totals(connection: Connection[Any], *, tolerance: float) -> Totals:
    with connection.cursor(row_factory=class_row(Totals)) as cursor:
        return cursor.execute(_QUERIES["totals"], {"tolerance": tolerance}).fetchall()[0]


def count_behind(connection: Connection[Any]) -> int:
    """Tenants that are not at the newest schema version."""
    return int(connection.execute(_QUERIES["behind"]).fetchall()[0][0])


def _over_chosen(name: str) -> str:
    return f"WITH chosen AS NOT MATERIALIZED ({_QUERIES['chosen']})\n{_QUERIES[name]}"
