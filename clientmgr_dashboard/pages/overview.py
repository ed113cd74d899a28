"""The first page, and the part of it that stays current."""

from starlette.requests import Request
from starlette.responses import Response

from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.operations.interface import Nothing
from clientmgr_dashboard.operations.overview import OPERATIONS, overview
from clientmgr_dashboard.web.handling import Site, get
from clientmgr_dashboard.web.page import DashboardPage
from clientmgr_dashboard.web.rendering import Navigation


async def whole(site: Site, request: Request, visitor: Visitor) -> Response:
    found = await overview(site.context(), visitor, Nothing())
    return site.renderer.page(request, "overview.html", overview=found)


async def live_part(site: Site, request: Request, visitor: Visitor) -> Response:
    found = await overview(site.context(), visitor, Nothing())
    return site.renderer.page(request, "overview_live.html", overview=found)


PAGE = DashboardPage(
    order=10,
    navigation=Navigation("Overview", "/"),
    routes=(get("/", whole), get("/overview/live", live_part)),
    operations=OPERATIONS,
)
