"""The first page, and the part of it that is asked for again and again."""

from starlette.requests import Request
from starlette.responses import Response

from clientmgr_dashboard.access.visitors import Visitor
from clientmgr_dashboard.operations.interface import Nothing
from clientmgr_dashboard.operations.overview import overview
from clientmgr_dashboard.pages.handling import Site, get


async def whole(site: Site, request: Request, visitor: Visitor) -> Response:
    found = await overview(site.desk(), visitor, Nothing())
    return site.renderer.page(request, "overview.html", overview=found)


async def live_part(site: Site, request: Request, visitor: Visitor) -> Response:
    found = await overview(site.desk(), visitor, Nothing())
    return site.renderer.page(request, "overview_live.html", overview=found)


ROUTES = (get("/", whole), get("/overview/live", live_part))
