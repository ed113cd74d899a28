"""Tenants: the table, one of them with everything known, its history and its audit trail."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from psycopg import Connection

from clientmgr.audit.log import AuditLogger, AuditRecord, chain_length, read_chain
from clientmgr.audit.verification import verify
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.settings import Settings
from clientmgr.orphans.exclusions import is_excluded
from clientmgr.orphans.policy import OrphanPolicy
from clientmgr.tenant_metrics.tenants import (
    HistoryPoint,
    OrphanState,
    Show,
    SortColumn,
    StatusFilter,
    TenantFilter,
    TenantNumbers,
    TenantRow,
    count_tenants,
    find_numbers,
    find_row,
    history,
    orphans_of,
    tenant_page,
)
from clientmgr.tenants.flippers import FlipperSetting, list_settings
from clientmgr.tenants.registry import find_tenant
from clientmgr_dashboard.access.addresses import service_url
from clientmgr_dashboard.access.visitors import Visitor
from clientmgr_dashboard.context import Desk
from clientmgr_dashboard.operations.interface import (
    CustomerNumber,
    Limit,
    Newest,
    NotFoundError,
    Page,
    PageNumber,
    PerPage,
    RowNumber,
    newest,
)

VERIFIED_AT_ONCE = 2_000
"""Rows of a chain that are checked whenever somebody looks; a longer chain is checked when somebody asks."""
FINDINGS_SHOWN = 20
Days = Annotated[int, Meta(ge=1, le=3660, description="How far back.")]
Milliseconds = Annotated[int, Meta(ge=1, le=253_402_300_799_000)]
CustomerIdBeginning = Annotated[str, Meta(max_length=18, pattern="^[0-9]*$")]


class TenantsRequest(Struct, frozen=True, rename="camel"):
    search: CustomerIdBeginning | None = None
    """The beginning of a customer id."""
    status: StatusFilter = "present"
    show: Show = "all"
    sort: SortColumn = "devices"
    order: Literal["asc", "desc"] = "desc"
    page: PageNumber = 1
    per_page: PerPage = 50


class TenantRequest(Struct, frozen=True, rename="camel"):
    customer_id: CustomerNumber


class HistoryRequest(Struct, frozen=True, rename="camel"):
    customer_id: CustomerNumber
    days: Days = 90
    limit: Limit = 100
    before: Milliseconds | None = None
    """Collected before this time, in epoch milliseconds."""


class AuditRequest(Struct, frozen=True, rename="camel"):
    customer_id: Annotated[int, Meta(ge=0, le=999_999_999_999_999_999, description="0: the platform itself.")]
    limit: Limit = 50
    before: RowNumber | None = None


class VerificationRequest(Struct, frozen=True, rename="camel"):
    customer_id: Annotated[int, Meta(ge=0, le=999_999_999_999_999_999, description="0: the platform itself.")]


class FlipperState(Struct, frozen=True, rename="camel"):
    """A flipper that is set, for one customer or (customerId null) for all."""

    name: str
    customer_id: int | None
    enabled: bool
    updated_by: str
    updated_at: datetime


class TenantDetail(Struct, frozen=True, rename="camel"):
    """All that is known of a tenant."""

    tenant: TenantRow
    numbers: TenantNumbers | None
    orphans: OrphanState
    orphans_excluded: bool
    flippers: list[FlipperState]
    audit_rows: int
    dagster_url: str


class AuditRow(Struct, frozen=True, rename="camel"):
    """A row of the audit log."""

    seq: int
    recorded_at: datetime
    actor: str
    action: str
    outcome: str
    rows_affected: int | None
    contact_hash: str | None
    details: dict[str, str | int | bool | None]
    is_authentic: bool | None
    """Whether it is as it was written; null: written with another key."""


class AuditFinding(Struct, frozen=True, rename="camel"):
    seq: int
    problem: str


class Verification(Struct, frozen=True, rename="camel"):
    """Whether a chain of the audit log is as it was written."""

    state: Literal["intact", "broken", "not checked"]
    rows: int
    findings: list[AuditFinding]


async def list_tenants(desk: Desk, _visitor: Visitor, request: TenantsRequest) -> Page[TenantRow]:
    chosen = TenantFilter(desk.settings.sync_tolerance, request.search or None, request.status, request.show)

    def read(connection: Connection[Any]) -> Page[TenantRow]:
        rows = tenant_page(
            connection,
            chosen,
            sort=request.sort,
            descending=request.order == "desc",
            limit=request.per_page,
            offset=(request.page - 1) * request.per_page,
        )
        return Page(rows, request.page, request.per_page, count_tenants(connection, chosen))

    return await desk.read(read)


async def show_tenant(desk: Desk, _visitor: Visitor, request: TenantRequest) -> TenantDetail:
    return await desk.read(_detail, desk.settings, CustomerId(request.customer_id))


async def tenant_history(desk: Desk, _visitor: Visitor, request: HistoryRequest) -> Newest[HistoryPoint]:
    before = None if request.before is None else datetime.fromtimestamp(request.before / 1000, UTC)

    def read(connection: Connection[Any]) -> list[HistoryPoint]:
        _require(connection, request.customer_id)
        return history(
            connection, CustomerId(request.customer_id), days=request.days, limit=request.limit + 1, before=before
        )

    points = await desk.read(read)
    return newest(points, request.limit, lambda point: int(point.collected_at.timestamp() * 1000))


async def audit_trail(desk: Desk, _visitor: Visitor, request: AuditRequest) -> Newest[AuditRow]:
    records = await desk.read(read_chain, request.customer_id, limit=request.limit + 1, before_seq=request.before)
    return newest([_audit_row(record, desk.audit) for record in records], request.limit, lambda row: row.seq)


async def verify_audit(desk: Desk, _visitor: Visitor, request: VerificationRequest) -> Verification:
    return await desk.read(_verify, desk.audit, request.customer_id)


async def quick_verification(desk: Desk, customer_id: int) -> Verification:
    """What `verify_audit` says, where that does not take long."""
    rows = await desk.read(chain_length, customer_id)
    if rows > VERIFIED_AT_ONCE:
        return Verification("not checked", rows, [])
    return await desk.read(_verify, desk.audit, customer_id)


def _detail(connection: Connection[Any], settings: Settings, customer_id: CustomerId) -> TenantDetail:
    row = find_row(connection, customer_id, tolerance=settings.sync_tolerance)
    if row is None:
        raise NotFoundError(f"customer {customer_id} was never activated")
    return TenantDetail(
        row,
        find_numbers(connection, customer_id),
        orphans_of(connection, customer_id),
        customer_id in OrphanPolicy.from_settings(settings).excluded or is_excluded(connection, customer_id),
        flipper_states(list_settings(connection, customer_id)),
        chain_length(connection, customer_id),
        f"{dagster_url(settings)}/assets/tenant_schema?view=partitions&partition={customer_id}",
    )


def flipper_states(settings: Iterable[FlipperSetting]) -> list[FlipperState]:
    return [FlipperState(one.name, one.customer_id, one.enabled, one.updated_by, one.updated_at) for one in settings]


def dagster_url(settings: Settings) -> str:
    return service_url(settings.dagster_url, settings.dagster_host, settings.dagster_port)


def _require(connection: Connection[Any], customer_id: int) -> None:
    if find_tenant(connection, CustomerId(customer_id)) is None:
        raise NotFoundError(f"customer {customer_id} was never activated")


def _audit_row(record: AuditRecord, audit: AuditLogger) -> AuditRow:
    return AuditRow(
        record.seq,
        record.recorded_at,
        record.actor,
        record.action,
        record.outcome,
        record.rows_affected,
        record.contact_hash,
        dict(record.details),
        audit.is_authentic(record) if record.key_id == audit.key_id else None,
    )


def _verify(connection: Connection[Any], audit: AuditLogger, customer_id: int) -> Verification:
    with connection.transaction():
        findings = [AuditFinding(found.seq, found.problem) for found in verify(connection, audit, customer_id)]
        rows = chain_length(connection, customer_id)
    return Verification("broken" if findings else "intact", rows, findings[:FINDINGS_SHOWN])
