"""The live broadcast's map, in a frame. The page in it is the broadcast's own."""

import time

from starlette.requests import Request
from starlette.responses import Response

from clientmgr.base.listening import service_url
from clientmgr.live.tokens import ALL_EVENTS, make_token, token_key
from clientmgr.operations.service_health import probe_services
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.access.dashboard_door import content_security_policy
from clientmgr_dashboard.operations.overview import SERVICES_EVERY_S
from clientmgr_dashboard.web.handling import Site, get
from clientmgr_dashboard.web.page import DashboardPage
from clientmgr_dashboard.web.rendering import Navigation

LONGEST_S = 12 * 3600.0


async def live(site: Site, request: Request, visitor: Visitor) -> Response:
    settings = site.context().settings
    origin = service_url(settings.live_url, settings.live_ws_host, settings.live_ws_port)
    page = f"{origin}/live"
    if settings.live_auth == "on":
        # Whoever may use the dashboard may watch, while the session lasts. After the #, so that no server logs it.
        # It ends with the session, however that ends.
        left, session = LONGEST_S, None
        if visitor.session is not None:
            left = visitor.session.expires_at - time.time()
            session = (visitor.session.id, visitor.session.name, visitor.session.started_at)
        token = make_token(token_key(settings), [ALL_EVENTS], min(left, LONGEST_S), session=session)
        page += f"#token={token}"
    services = await site.context().shared.answer("services", SERVICES_EVERY_S, lambda: probe_services(settings))
    broadcast = next((one for one in services if one.name == "broadcast"), None)
    answer = site.renderer.page(request, "live.html", page=page, origin=origin, broadcast=broadcast)
    answer.headers["Content-Security-Policy"] = content_security_policy(frames_from=origin)
    return answer


PAGE = DashboardPage(
    order=70,
    navigation=Navigation("Live", "/live"),
    routes=(get("/live", live),),
)
