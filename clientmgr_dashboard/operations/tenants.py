"""Tenants: the table, one of them with everything known, and its history."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from psycopg import Connection
from psycopg.errors import UndefinedTable

from clientmgr.audit.log import chain_length
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import InvalidInputError
from clientmgr.base.settings import Settings
from clientmgr.devices.lookup import DeviceLookup
from clientmgr.operations.dagster_addresses import tenant_in_dagster
from clientmgr.operations.tenant_requests import request_activation, request_deletion
from clientmgr.orphans.exclusions import is_excluded
from clientmgr.orphans.left_out import legacy_customers
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
from clientmgr.tenants.flippers import FlipperState, list_settings
from clientmgr.tenants.names import LONGEST, rename_tenant
from clientmgr.tenants.registry import TenantStatus, find_tenant
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import (
    Changed,
    CustomerNumber,
    Limit,
    Newest,
    NotFoundError,
    Page,
    PageNumber,
    PerPage,
    SearchText,
    api_get,
    api_post,
    newest,
)

LOOK_AT_DEVICES = 1_000_000
"""To find the newest write, all of a tenant's devices are read: not of a tenant with more."""
Days = Annotated[int, Meta(ge=1, le=3660, description="How far back.")]
Milliseconds = Annotated[int, Meta(ge=1, le=253_402_300_799_000)]


class TenantsRequest(Struct, frozen=True, rename="camel"):
    search: SearchText | None = None
    """The beginning of a customer id, or a part of the name."""
    status: StatusFilter = "present"
    show: Show = "all"
    sort: SortColumn = "devices"
    order: Literal["asc", "desc"] = "desc"
    page: PageNumber = 1
    per_page: PerPage = 50


class TenantRequest(Struct, frozen=True, rename="camel"):
    customer_id: CustomerNumber


class RenameRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    customer_id: CustomerNumber
    name: Annotated[str, Meta(max_length=LONGEST, pattern=r"^[^\x00-\x1f]*$", description="Empty: none any more.")] = ""


class ActivateRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    customer_id: CustomerNumber


class DeleteRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    customer_id: CustomerNumber
    confirm: Annotated[int, Meta(ge=1, description="The customer's id once more.")]


class Requested(Struct, frozen=True, rename="camel"):
    """A message asks for it: Dagster acts on it within seconds."""

    customer_id: int


class HistoryRequest(Struct, frozen=True, rename="camel"):
    customer_id: CustomerNumber
    days: Days = 90
    limit: Limit = 100
    before: Milliseconds | None = None
    """Collected before this time, in epoch milliseconds."""


class TenantDetail(Struct, frozen=True, rename="camel"):
    """All that is known of a tenant."""

    tenant: TenantRow
    last_write_at: datetime | None
    """As of now; null: there is none, or the tenant is too large to look. Then `tenant` has what the night counted."""
    numbers: TenantNumbers | None
    orphans: OrphanState
    orphans_excluded: bool
    reads_legacy_store: bool
    """Its devices may still come from DynamoDB: it has no orphans."""
    flippers: list[FlipperState]
    audit_rows: int
    dagster_url: str
    """Its partition in Dagster."""
    dagster_deletions_url: str
    """What Dagster saw of its deletions."""


async def list_tenants(context: Context, _visitor: Visitor, request: TenantsRequest) -> Page[TenantRow]:
    chosen = TenantFilter(context.settings.sync_tolerance, request.search or None, request.status, request.show)

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

    return await context.read(read)


async def show_tenant(context: Context, _visitor: Visitor, request: TenantRequest) -> TenantDetail:
    return await context.read(_detail, context.settings, CustomerId(request.customer_id))


async def tenant_history(context: Context, _visitor: Visitor, request: HistoryRequest) -> Newest[HistoryPoint]:
    before = None if request.before is None else datetime.fromtimestamp(request.before / 1000, UTC)

    def read(connection: Connection[Any]) -> list[HistoryPoint]:
        _require(connection, request.customer_id)
        return history(
            connection, CustomerId(request.customer_id), days=request.days, limit=request.limit + 1, before=before
        )

    points = await context.read(read)
    return newest(points, request.limit, lambda point: int(point.collected_at.timestamp() * 1000))


async def name_tenant(context: Context, visitor: Visitor, request: RenameRequest) -> Changed:
    def change(connection: Connection[Any]) -> bool:
        with connection.transaction():
            customer_id = CustomerId(request.customer_id)
            return rename_tenant(connection, context.audit, customer_id, request.name, actor=visitor.actor)

    return Changed(await context.write(change))


async def activate_tenant(context: Context, visitor: Visitor, request: ActivateRequest) -> Requested:
    """Ask for a customer's schema."""
    customer_id = CustomerId(request.customer_id)
    await request_activation(context.database, context.settings, customer_id, actor=visitor.actor)
    return Requested(request.customer_id)


async def delete_tenant(context: Context, visitor: Visitor, request: DeleteRequest) -> Requested:
    """Ask for the deletion of a customer's account with all that is its own."""
    if request.confirm != request.customer_id:
        raise InvalidInputError("confirm", f"the customer's id, {request.customer_id}", request.confirm)
    await context.read(_require, request.customer_id)
    customer_id = CustomerId(request.customer_id)
    await request_deletion(context.database, context.settings, customer_id, actor=visitor.actor)
    return Requested(request.customer_id)


def _detail(connection: Connection[Any], settings: Settings, customer_id: CustomerId) -> TenantDetail:
    row = find_row(connection, customer_id, tolerance=settings.sync_tolerance)
    if row is None:
        raise NotFoundError(f"customer {customer_id} was never activated")
    policy = OrphanPolicy.from_settings(settings)
    return TenantDetail(
        row,
        _last_write(connection, customer_id) if row.status == TenantStatus.ACTIVE else None,
        find_numbers(connection, customer_id),
        orphans_of(connection, customer_id),
        customer_id in policy.excluded or is_excluded(connection, customer_id),
        bool(legacy_customers(connection, policy, [customer_id])),
        list(list_settings(connection, customer_id)),
        chain_length(connection, customer_id),
        tenant_in_dagster(settings, "tenant_schema", customer_id),
        tenant_in_dagster(settings, "devices", customer_id),
    )


def _last_write(connection: Connection[Any], customer_id: CustomerId) -> datetime | None:
    try:
        return DeviceLookup(connection, customer_id).last_write(at_most=LOOK_AT_DEVICES)
    except UndefinedTable:
        return None  # its schema is missing: the reconciliation says so


def _require(connection: Connection[Any], customer_id: int) -> None:
    if find_tenant(connection, CustomerId(customer_id)) is None:
        raise NotFoundError(f"customer {customer_id} was never activated")


OPERATIONS = (
    api_get("/tenants", "The tenants.", list_tenants),
    api_get("/tenants/{customerId}", "All that is known of a tenant.", show_tenant),
    api_post("/tenants/rename", "Say what people call a tenant.", name_tenant),
    api_post("/tenants/activate", "Ask for a customer's activation.", activate_tenant),
    api_post("/tenants/delete", "Ask for the deletion of a customer's account.", delete_tenant),
    api_get("/tenants/{customerId}/history", "A tenant's numbers over time.", tenant_history),
)
