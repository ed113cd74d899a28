"""The dashboard's door: a token of ours in every form, and pages that load nothing from elsewhere."""

from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qs, quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response

from clientmgr.base.settings import Settings
from clientmgr_dashboard.access.addresses import own_hosts
from clientmgr_dashboard.access.authentication import Authenticator, Visitor
from clientmgr_dashboard.access.door import Door

API: Final = "/api/"
CSRF_FIELD: Final = "csrf_token"
CSRF_HEADER: Final = "x-csrf-token"
OPEN_TO_ALL: Final = ("/sign-in", "/static/", "/healthz")

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action %s; base-uri 'none'; frame-ancestors 'none'"
)

Refuse = Callable[[Request, int, str], Response]
"""Makes the answer to a request that is refused: a page or a problem document."""


def content_security_policy(*, frames_from: str = "", forms_lead_to: str = "") -> str:
    """`forms_lead_to`: an origin that the answer to a form may send the browser to."""
    policy = _POLICY % " ".join(filter(None, ["'self'", forms_lead_to]))
    return f"{policy}; frame-src {frames_from}" if frames_from else policy


class DashboardDoor(Door):
    name = "the dashboard"

    def __init__(self, settings: Settings, port: int, authenticator: Authenticator, refuse: Refuse) -> None:
        self.hosts = own_hosts(settings.dashboard_host, port, settings.dashboard_url)
        self.origin = settings.dashboard_url.lower()
        self._authenticator = authenticator
        self._refuse = refuse

    def is_open(self, path: str) -> bool:
        return path in OPEN_TO_ALL or path.startswith("/static/")

    def takes_password(self, connection: HTTPConnection) -> bool:
        return connection.url.path.startswith(API)

    def ask_to_sign_in(self, request: Request) -> Response:
        path = request.url.path
        if path.startswith(API):
            return self.refuse(request, 401, "Sign in, or send name and password with the request.")
        if request.method == "GET":
            wanted = quote(path + (f"?{request.url.query}" if request.url.query else ""))
            return RedirectResponse(f"/sign-in?next={wanted}", 303)
        return self.refuse(request, 401, "Sign in first.")

    def refuse(self, request: Request, status: int, detail: str) -> Response:
        return self._refuse(request, status, detail)

    def refusal_of_change(self, request: Request, visitor: Visitor | None, body: bytes) -> Response | None:
        if visitor is None or visitor.session is None:
            return None  # the sign-in form, whose handler checks the password; or a script that knows one
        token = _csrf_token(request.headers, body)
        if self._authenticator.sessions.is_csrf_token(visitor.session, token):
            return None
        return self.refuse(request, 403, "The form is too old, or was not ours: load the page again.")

    def add_headers(self, headers: MutableHeaders, visitor: Visitor | None) -> None:
        headers["X-Frame-Options"] = "DENY"
        headers["Permissions-Policy"] = "camera=(), geolocation=(), microphone=()"
        headers.setdefault("Content-Security-Policy", content_security_policy())
        headers.setdefault("Cache-Control", "no-store")
        if visitor is not None and visitor.is_new:
            headers.append("Set-Cookie", self._authenticator.set_cookie(visitor.session, lasting=False))


def _csrf_token(headers: Headers, body: bytes) -> str:
    if token := headers.get(CSRF_HEADER):
        return token
    if headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        return ""
    try:
        return parse_qs(body.decode("ascii"), max_num_fields=2000).get(CSRF_FIELD, [""])[0]
    except ValueError:
        return ""
