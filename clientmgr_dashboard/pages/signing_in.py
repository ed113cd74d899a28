"""Signing in and out."""

from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from clientmgr.audit.log import PLATFORM, AuditEntry
from clientmgr.base.logs import get_logger
from clientmgr_dashboard.access.addresses import dagster_beside
from clientmgr_dashboard.access.attempts import TooManyAttemptsError
from clientmgr_dashboard.access.authentication import DEVICE_COOKIE, Visitor
from clientmgr_dashboard.access.dashboard_door import content_security_policy
from clientmgr_dashboard.access.users import Role
from clientmgr_dashboard.web.forms import form_fields
from clientmgr_dashboard.web.handling import Site, post, see_other, with_problem_page
from clientmgr_dashboard.web.page import DashboardPage

log = get_logger(__name__)


def sign_in_route(site: Site) -> Route:
    """The one page that needs no session."""

    async def sign_in(request: Request) -> Response:
        if not site.authenticator.sign_in_needed:
            return see_other("/")
        if request.method == "GET":
            wanted = request.query_params.get("next", "/")
            return (
                _form(site, request, wanted)
                if request.state.visitor is None
                else see_other(_own_page(site, request, wanted))
            )
        fields = await form_fields(request)
        name, wanted = str(fields.get("name", "")), str(fields.get("next", "/"))
        address = request.client.host if request.client else ""
        device = request.cookies.get(DEVICE_COOKIE, "")
        try:
            user = await site.authenticator.of_password(name, str(fields.get("password", "")), address, device=device)
        except TooManyAttemptsError as error:
            found = "Too many attempts: try again in a few minutes."
            answer = _form(site, request, wanted, status=error.status, problem=found)
            answer.headers["Retry-After"] = str(error.retry_after_s)
            return answer
        if user is None:
            return _form(site, request, wanted, status=401, problem="Wrong name or password.")
        session = site.authenticator.sessions.start(user)
        await _record(site, Visitor(user.name, user.role, session), "dashboard.sign-in")
        answer = see_other(_own_page(site, request, wanted))
        answer.headers["Set-Cookie"] = site.authenticator.set_cookie(session)
        if not site.authenticator.sessions.known_device(user.name, device):
            answer.headers.append("Set-Cookie", site.authenticator.set_device_cookie(user))
        return answer

    return Route("/sign-in", with_problem_page(site, sign_in), methods=["GET", "POST"])


async def sign_out(site: Site, _request: Request, visitor: Visitor) -> Response:
    if visitor.session is not None and site.authenticator.ended is not None:
        # The cookie may have been copied, and live tokens were made from it.
        session = visitor.session
        await site.authenticator.ended.end(session.id, session.name, session.expires_at)
    try:
        await _record(site, visitor, "dashboard.sign-out")
    except Exception as error:
        # A failed audit entry must not keep anybody signed in.
        log.error("a sign-out is not in the audit log", user=visitor.name, exc_info=error)
    answer = see_other("/sign-in")
    answer.headers["Set-Cookie"] = site.authenticator.set_cookie(None)
    return answer


async def _record(site: Site, visitor: Visitor, action: str) -> None:
    entry = AuditEntry(PLATFORM, visitor.actor, action, "done", details={"role": str(visitor.role)})
    await site.context().record(entry)


def _form(site: Site, request: Request, wanted: str, *, status: int = 200, problem: str = "") -> Response:
    wanted = _own_page(site, request, wanted)
    answer = site.renderer.page(request, "sign_in.html", status=status, wanted=wanted, problem=problem)
    if not wanted.startswith("/"):
        dagster = dagster_beside(site.context().settings, request.headers.get("host", ""))
        answer.headers["Content-Security-Policy"] = content_security_policy(forms_lead_to=dagster)
    return answer


def _own_page(site: Site, request: Request, wanted: str) -> str:
    """Only our own pages, and those of Dagster's UI: //elsewhere and /\\elsewhere would leave the site."""
    if not wanted.isprintable() or "\\" in wanted:
        return "/"
    if wanted.startswith("/") and not wanted.startswith("//"):
        return wanted
    dagster = dagster_beside(site.context().settings, request.headers.get("host", ""))
    # Not `startswith`: http://127.0.0.1:3000@elsewhere and http://127.0.0.1:3000.elsewhere begin like ours.
    try:
        parts = urlsplit(wanted)
    except ValueError:
        return "/"
    return wanted if f"{parts.scheme}://{parts.netloc}".lower() == dagster.lower() else "/"


PAGE = DashboardPage(
    order=80,
    routes=(
        sign_in_route,
        post("/sign-out", sign_out, needs=Role.VIEWER),
    ),
)
