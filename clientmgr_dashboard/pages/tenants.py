"""The table of tenants, a page for each, and its history as charts and as CSV."""

import asyncio
import csv
import io
from collections.abc import Sequence

import msgspec
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from clientmgr.tenant_metrics.tenants import HistoryPoint
from clientmgr_dashboard import charts
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.operations import audit, tenants
from clientmgr_dashboard.operations.audit import AuditRequest, audit_trail
from clientmgr_dashboard.operations.tenants import (
    HistoryRequest,
    RenameRequest,
    TenantRequest,
    TenantsRequest,
    list_tenants,
    name_tenant,
    show_tenant,
    tenant_history,
)
from clientmgr_dashboard.pages.audit import verification_of
from clientmgr_dashboard.web.forms import from_form, from_query
from clientmgr_dashboard.web.handling import Site, as_parameters, get, post, see_other
from clientmgr_dashboard.web.page import DashboardPage
from clientmgr_dashboard.web.rendering import Navigation

POINTS = 500
AUDIT_ROWS = 25
NO_PLATFORM = "unknown"

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
        tolerance=context.settings.sync_tolerance,
    )


async def rename(site: Site, request: Request, visitor: Visitor) -> Response:
    wanted = await from_form(request, RenameRequest)
    await name_tenant(site.context(), visitor, wanted)
    return see_other(f"/tenants/{wanted.customer_id}")


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
    return Response(
        as_csv(list(reversed(points))),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


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
    output = io.StringIO()
    writer = csv.writer(output)
    writer.writerow([*plain, *(f"devices {_printable(platform or NO_PLATFORM)}" for platform in platforms)])
    for point in points:
        by_platform = point.devices_by_platform or {}
        values = [getattr(point, field) for field in plain]
        writer.writerow(
            [
                *(
                    value.isoformat() if field == "collected_at" else value
                    for field, value in zip(plain, values, strict=True)
                ),
                *(by_platform.get(platform, 0) for platform in platforms),
            ]
        )
    return output.getvalue()


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


PAGE = DashboardPage(
    order=20,
    navigation=Navigation("Tenants", "/tenants"),
    routes=(
        get("/tenants", table),
        post("/tenants/rename", rename),
        get("/tenants/{customerId:int}", one),
        get("/tenants/{customerId:int}/history.csv", history_csv),
    ),
    operations=(*tenants.OPERATIONS, *audit.OPERATIONS),
)
