"""Topics, their subscriptions and lag. What failed has a page of its own."""

from starlette.requests import Request
from starlette.responses import Response

from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.operations import topics
from clientmgr_dashboard.operations.topics import TopicsRequest, list_topics
from clientmgr_dashboard.web.forms import from_query
from clientmgr_dashboard.web.handling import Site, get
from clientmgr_dashboard.web.page import DashboardPage
from clientmgr_dashboard.web.rendering import Navigation


async def log_topics(site: Site, request: Request, visitor: Visitor) -> Response:
    page = await list_topics(site.context(), visitor, from_query(request, TopicsRequest))
    return site.renderer.page(request, "topics.html", page=page)


PAGE = DashboardPage(
    order=40,
    navigation=Navigation("Messages", "/messages"),
    routes=(get("/messages", log_topics),),
    operations=topics.OPERATIONS,
)
