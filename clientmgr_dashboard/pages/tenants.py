"""The table of tenants, a page for each, and its history as charts and as CSV."""

import asyncio
from collections.abc import Sequence
from typing import Literal

import msgspec
from markupsafe import Markup
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from clientmgr.tenant_metrics.tenants import HistoryPoint, TenantRow
from clientmgr_dashboard import charts
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.operations import audit, tenants
from clientmgr_dashboard.operations.audit import AuditRequest, audit_trail
from clientmgr_dashboard.operations.flippers import ExcludeRequest, IncludeRequest, exclude_customer, include_customer
from clientmgr_dashboard.operations.tenants import (
    ActivateRequest,
    DeleteRequest,
    HistoryRequest,
    RenameRequest,
    TenantRequest,
    TenantsRequest,
    activate_tenant,
    delete_tenant,
    list_tenants,
    name_tenant,
    show_tenant,
    tenant_history,
)
from clientmgr_dashboard.pages.audit import verification_of
from clientmgr_dashboard.web.csv_files import csv_answer, csv_text
from clientmgr_dashboard.web.forms import from_form, from_query
from clientmgr_dashboard.web.handling import Site, as_parameters, get, post, see_other
from clientmgr_dashboard.web.page import DashboardPage
from clientmgr_dashboard.web.rendering import Navigation

POINTS = 500
AUDIT_ROWS = 25
NO_PLATFORM = "unknown"
MOST_ON_A_PAGE = 500

# Name, what it is called, what it is sorted by. The first column is the tenant itself.
COLUMNS = (
    ("customerId", "Tenant"),
    ("status", "Status"),
    ("devices", "Devices"),
    ("growth24h", "24 h"),
    ("growth7d", "7 d"),
    ("contacts", "Contacts"),
    ("pushEnabledShare", "Push on"),
    ("tokensValidShare", "Valid tokens"),
    ("tokensInvalidShare", "Invalid"),
    ("orphans", "Orphans"),
    ("syncDifferenceShare", "Sync"),
    ("lastWriteAt", "Last write"),
    ("schemaVersion", "Schema"),
    ("tableBytes", "Size"),
)


class Outcome(Struct, frozen=True):
    done: Literal["activation", "deletion", "kept", "released"] | None = None


async def table(site: Site, request: Request, visitor: Visitor) -> Response:
    wanted = from_query(request, TenantsRequest)
    page = await list_tenants(site.context(), visitor, wanted)
    tolerance = site.context().settings.sync_tolerance
    return site.renderer.page(
        request,
        "tenants.html",
        page=page,
        wanted=wanted,
        parameters=as_parameters(wanted),
        columns=COLUMNS,
        tolerance=tolerance,
        done=from_query(request, Outcome).done,
    )


async def one(site: Site, request: Request, visitor: Visitor) -> Response:
    context, wanted = site.context(), from_query(request, TenantRequest)
    # `before` in this page's address is a row of the audit trail, not a time.
    history = from_query(request, HistoryRequest, limit=POINTS, before=None)
    trail = from_query(request, AuditRequest, limit=AUDIT_ROWS)
    # First: for an unknown customer there is nothing else to ask.
    detail = await show_tenant(context, visitor, wanted)
    points, rows, verified = await asyncio.gather(
        tenant_history(context, visitor, history),
        audit_trail(context, visitor, trail),
        verification_of(site, request, visitor, wanted.customer_id),
    )
    return site.renderer.page(
        request,
        "tenant.html",
        detail=detail,
        tenant=detail.tenant,
        numbers=detail.numbers,
        days=history.days,
        points=points.items,
        charts=_charts(list(reversed(points.items))),
        trail=rows,
        verification=verified,
        done=from_query(request, Outcome).done,
        tolerance=context.settings.sync_tolerance,
    )


async def rename(site: Site, request: Request, visitor: Visitor) -> Response:
    wanted = await from_form(request, RenameRequest)
    await name_tenant(site.context(), visitor, wanted)
    return see_other(f"/tenants/{wanted.customer_id}")


async def activate(site: Site, request: Request, visitor: Visitor) -> Response:
    done = await activate_tenant(site.context(), visitor, await from_form(request, ActivateRequest))
    # One that never was has no page until Dagster has registered it.
    return see_other(f"/tenants?search={done.customer_id}&status=any&done=activation")


async def delete(site: Site, request: Request, visitor: Visitor) -> Response:
    wanted = await from_form(request, DeleteRequest, **request.path_params)
    await delete_tenant(site.context(), visitor, wanted)
    return see_other(f"/tenants/{wanted.customer_id}?done=deletion")


async def keep_orphans(site: Site, request: Request, visitor: Visitor) -> Response:
    wanted = await from_form(request, ExcludeRequest, **request.path_params)
    await exclude_customer(site.context(), visitor, wanted)
    return see_other(f"/tenants/{wanted.customer_id}?done=kept")


async def release_orphans(site: Site, request: Request, visitor: Visitor) -> Response:
    wanted = await from_form(request, IncludeRequest, **request.path_params)
    await include_customer(site.context(), visitor, wanted)
    return see_other(f"/tenants/{wanted.customer_id}?done=released")


async def table_csv(site: Site, request: Request, visitor: Visitor) -> Response:
    """All that the table's filters select, not only the page that is shown."""
    wanted = from_query(request, TenantsRequest, page=1, perPage=MOST_ON_A_PAGE)
    rows: list[TenantRow] = []
    while True:
        page = await list_tenants(site.context(), visitor, wanted)
        rows += page.items
        if wanted.page >= page.pages:
            break
        wanted = msgspec.structs.replace(wanted, page=wanted.page + 1)
    return csv_answer("tenants.csv", csv_text(TenantRow.__struct_fields__, map(msgspec.structs.astuple, rows)))


async def history_csv(site: Site, request: Request, visitor: Visitor) -> Response:
    wanted = from_query(request, HistoryRequest, limit=POINTS)
    points: list[HistoryPoint] = []
    while True:
        part = await tenant_history(site.context(), visitor, wanted)
        points += part.items
        if part.next is None:
            break
        wanted = msgspec.structs.replace(wanted, before=part.next)
    name = f"tenant-{wanted.customer_id}-history.csv"
    return csv_answer(name, as_csv(list(reversed(points))))


def _charts(points: Sequence[HistoryPoint]) -> list[Markup]:
    if not points:
        return []
    times = [point.collected_at for point in points]
    platforms = platforms_of(points)
    return [
        charts.stacked_areas(
            "Devices by platform",
            times,
            {
                platform: [(point.devices_by_platform or {}).get(platform, 0) for point in points]
                for platform in platforms
            },
        ),
        charts.lines(
            "Push enabled and token validity",
            times,
            {
                "push enabled": [point.push_enabled_share for point in points],
                "token valid": [point.tokens_valid_share for point in points],
                "token invalid": [point.tokens_invalid_share for point in points],
                "no token": [point.tokens_none_share for point in points],
            },
        ),
    ]


def platforms_of(points: Sequence[HistoryPoint]) -> list[str]:
    """All platforms, the one with the most devices at the last collection first."""
    last = points[-1].devices_by_platform or {}
    found = {platform for point in points for platform in point.devices_by_platform or {}}
    return sorted(found, key=lambda platform: (-last.get(platform, 0), platform))


def as_csv(points: Sequence[HistoryPoint]) -> str:
    """A line for each collection, the oldest first. Numbers, and names behind a word: no cell is a formula."""
    platforms = platforms_of(points) if points else []
    plain = [field for field in HistoryPoint.__struct_fields__ if field != "devices_by_platform"]
    rows = (
        [*(getattr(point, field) for field in plain)]
        + [(point.devices_by_platform or {}).get(platform, 0) for platform in platforms]
        for point in points
    )
    return csv_text([*plain, *(f"devices {platform or NO_PLATFORM}" for platform in platforms)], rows)


_TABLE = get("/tenants", table)
_TENANT = get("/tenants/{customerId:int}", one)

PAGE = DashboardPage(
    order=20,
    navigation=Navigation("Tenants", "/tenants"),
    routes=(
        _TABLE,
        get("/tenants.csv", table_csv),
        post("/tenants/activate", activate, form_on=_TABLE),
        _TENANT,
        post("/tenants/rename", rename, form_on=_TABLE),
        post("/tenants/{customerId:int}/delete", delete, form_on=_TENANT),
        post("/tenants/{customerId:int}/keep-orphans", keep_orphans, form_on=_TENANT),
        post("/tenants/{customerId:int}/release-orphans", release_orphans, form_on=_TENANT),
        get("/tenants/{customerId:int}/history.csv", history_csv),
    ),
    operations=(*tenants.OPERATIONS, *audit.OPERATIONS),
)
