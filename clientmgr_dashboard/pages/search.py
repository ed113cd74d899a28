"""The search in the head of every page, and what it found."""

from starlette.requests import Request
from starlette.responses import Response

from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.access.users import Role
from clientmgr_dashboard.operations.search import OPERATIONS, SearchRequest, search
from clientmgr_dashboard.web.forms import form_fields, from_form
from clientmgr_dashboard.web.handling import Site, get, post
from clientmgr_dashboard.web.page import DashboardPage


async def empty(site: Site, request: Request, _visitor: Visitor) -> Response:
    return site.renderer.page(request, "search.html", found=None, text="")


async def asked(site: Site, request: Request, visitor: Visitor) -> Response:
    """By POST: what is searched for may be a token, and addresses are kept in histories and logs."""
    if "text" not in await form_fields(request):
        return await empty(site, request, visitor)
    wanted = await from_form(request, SearchRequest)
    found = await search(site.context(), visitor, wanted)
    return site.renderer.page(request, "search.html", found=found, text=wanted.text)


PAGE = DashboardPage(
    order=15,
    routes=(get("/search", empty), post("/search", asked, needs=Role.VIEWER)),
    operations=OPERATIONS,
)
