"""The first page, the parts of it that stay current, and a page for each process."""

from collections.abc import Callable
from typing import NamedTuple

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from clientmgr.operations.samples import TrendPoint
from clientmgr_dashboard import charts
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.operations.interface import Nothing
from clientmgr_dashboard.operations.overview import OPERATIONS, Trend, overview, show_trend
from clientmgr_dashboard.operations.processes import ProcessRequest, show_process
from clientmgr_dashboard.web.forms import from_query
from clientmgr_dashboard.web.handling import Site, get
from clientmgr_dashboard.web.page import DashboardPage
from clientmgr_dashboard.web.rendering import Navigation, span


class Drawn(NamedTuple):
    """A chart, and the page that has what it is made of."""

    title: str
    link: str
    chart: Markup


async def whole(site: Site, request: Request, visitor: Visitor) -> Response:
    found = await overview(site.context(), visitor, Nothing())
    trend = await show_trend(site.context(), visitor, Nothing())
    return site.renderer.page(request, "overview.html", overview=found, trend=trend, drawn=_drawn(trend))


async def live_part(site: Site, request: Request, visitor: Visitor) -> Response:
    found = await overview(site.context(), visitor, Nothing())
    return site.renderer.page(request, "overview_live.html", overview=found)


async def live_trend(site: Site, request: Request, visitor: Visitor) -> Response:
    trend = await show_trend(site.context(), visitor, Nothing())
    return site.renderer.page(request, "overview_trend.html", trend=trend, drawn=_drawn(trend))


async def process(site: Site, request: Request, visitor: Visitor) -> Response:
    found = await show_process(site.context(), visitor, from_query(request, ProcessRequest))
    return site.renderer.page(request, "process.html", process=found)


def _drawn(trend: Trend) -> list[Drawn]:
    def draw(title: str, link: str, value: Callable[[TrendPoint], float | None], shown: charts.Shown) -> Drawn:
        times = [point.at for point in trend.points]
        return Drawn(title, link, charts.trend(title, times, [value(point) for point in trend.points], shown))

    if not trend.points:
        return []
    return [
        draw("Device events a minute", "/messages", lambda point: point.events_per_minute, charts.small),
        draw("Errors a minute", "/failures", lambda point: point.errors_per_minute, charts.small),
        draw("Messages sent a minute", "/messages", lambda point: point.sends_per_minute, charts.small),
        draw("Oldest unread message", "/#lag", lambda point: point.oldest_unread_s, span),
    ]


PAGE = DashboardPage(
    order=10,
    navigation=Navigation("Overview", "/"),
    routes=(
        get("/", whole),
        get("/overview/live", live_part),
        get("/overview/trend", live_trend),
        get("/processes/{name}", process),
    ),
    operations=OPERATIONS,
)
