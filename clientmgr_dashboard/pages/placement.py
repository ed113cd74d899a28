"""Where tenants lie on a Citus cluster, and the commands that move them. Reached from the table of tenants."""

from starlette.requests import Request
from starlette.responses import Response

from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.operations.placement import OPERATIONS, PlacementRequest, show_placement
from clientmgr_dashboard.web.forms import from_query
from clientmgr_dashboard.web.handling import Site, as_parameters, get
from clientmgr_dashboard.web.page import DashboardPage


async def whole(site: Site, request: Request, visitor: Visitor) -> Response:
    wanted = from_query(request, PlacementRequest)
    found = await show_placement(site.context(), visitor, wanted)
    return site.renderer.page(request, "placement.html", found=found, wanted=wanted, parameters=as_parameters(wanted))


async def live_part(site: Site, request: Request, visitor: Visitor) -> Response:
    found = await show_placement(site.context(), visitor, PlacementRequest())
    return site.renderer.page(request, "placement_live.html", found=found)


PAGE = DashboardPage(
    order=21,
    routes=(get("/placement", whole), get("/placement/live", live_part)),
    operations=OPERATIONS,
)
