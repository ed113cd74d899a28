"""The guard that every request passes first. It finds out whose it is, and whether our own page sent it.

It also tells browsers, on every answer, to load nothing from elsewhere and to run no script but our files.
"""

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clientmgr.base.errors import SettingsError
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr_dashboard.access.addresses import own_hosts
from clientmgr_dashboard.access.attempts import TooManyAttemptsError
from clientmgr_dashboard.access.authentication import COOKIE, Authenticator, SessionsUnknownError, Visitor

log = get_logger(__name__)

API: Final = "/api/"
CSRF_FIELD: Final = "csrf_token"
CSRF_HEADER: Final = "x-csrf-token"
MOST_BODY_BYTES: Final = 1024 * 1024
OPEN_TO_ALL: Final = ("/sign-in", "/static/", "/healthz")

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}

Refuse = Callable[[Request, int, str], Response]
"""Makes the answer to a request that is refused: a page or a problem document."""


def content_security_policy(*, frames_from: str = "") -> str:
    return f"{_POLICY}; frame-src {frames_from}" if frames_from else _POLICY


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(
        self, app: ASGIApp, *, settings: Settings, port: int, authenticator: Authenticator, refuse: Refuse
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._refuse = refuse
        self._own_hosts = own_hosts(settings, port)
        self._own_origin = settings.dashboard_url.lower()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        visitor: Visitor | None = None

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add_headers(MutableHeaders(scope=message), visitor)
            await send(message)

        try:
            answer, visitor, body = await self._examine(request)
        except TooManyAttemptsError as error:
            answer, body = self._refuse(request, error.status, "Too many passwords are tried: try again later."), None
            answer.headers["Retry-After"] = str(error.retry_after_s)
        except SessionsUnknownError:
            answer, body = self._refuse(request, 503, "The database does not answer."), None
        except SettingsError as error:
            log.error("nobody can be let in", error=str(error))
            answer, body = self._refuse(request, 503, "The users file can't be read; the log says why."), None
        if answer is not None:
            await answer(scope, receive, send_guarded)
            return
        scope.setdefault("state", {})["visitor"] = visitor
        await self._app(scope, receive if body is None else _replayed(body, receive), send_guarded)

    async def _examine(self, request: Request) -> tuple[Response | None, Visitor | None, bytes | None]:
        """An answer if the request is refused; else whose it is, and the body if it had to be read."""
        headers, path = request.headers, request.url.path
        if not self._authenticator.sign_in_needed and headers.get("host", "").lower() not in self._own_hosts:
            return self._refuse(request, 421, "This is not the address of the dashboard."), None, None
        visitor = await self._visitor(request)
        is_open = path in OPEN_TO_ALL or path.startswith("/static/")
        if visitor is None and not is_open:
            if path.startswith(API):
                return self._refuse(request, 401, "Sign in, or send name and password with the request."), None, None
            if request.method == "GET":
                wanted = quote(path + (f"?{request.url.query}" if request.url.query else ""))
                return RedirectResponse(f"/sign-in?next={wanted}", 303), None, None
            return self._refuse(request, 401, "Sign in first."), None, None
        if request.method in {"GET", "HEAD"}:
            return None, visitor, None
        return await self._examine_change(request, visitor)

    async def _examine_change(
        self, request: Request, visitor: Visitor | None
    ) -> tuple[Response | None, Visitor | None, bytes | None]:
        """A change must come from our own page, or from a script that knows a password."""
        body = await _read_body(request)
        if body is None:
            return self._refuse(request, 413, f"More than {MOST_BODY_BYTES:,} bytes."), None, None
        if not self._is_same_origin(request.headers):
            return self._refuse(request, 403, "This request comes from another site's page."), None, None
        if visitor is None:
            return None, None, body  # the sign-in form itself: its handler checks the password
        if visitor.session is not None and not self._authenticator.sessions.is_csrf_token(
            visitor.session, _csrf_token(request.headers, body)
        ):
            detail = "The form is too old, or was not ours: load the page again."
            return self._refuse(request, 403, detail), None, None
        return None, visitor, body

    async def _visitor(self, request: Request) -> Visitor | None:
        cookie, path = request.cookies.get(COOKIE), request.url.path
        try:
            if cookie and (visitor := self._authenticator.of_cookie(cookie, leaving=path == "/sign-out")):
                return visitor
        except SessionsUnknownError:
            if path not in OPEN_TO_ALL and not path.startswith("/static/"):
                raise
        if not self._authenticator.sign_in_needed:
            return self._authenticator.at_this_machine()
        if (header := request.headers.get("authorization")) and request.url.path.startswith(API):
            address = request.client.host if request.client else ""
            return await self._authenticator.of_authorization(header, address)
        return None

    def _is_same_origin(self, headers: Headers) -> bool:
        """By headers that browsers set and no page can change. Scripts do not send them, which is fine."""
        if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
            return False
        origin = headers.get("origin", "").lower()
        return not origin or origin == self._own_origin or urlsplit(origin).netloc == headers.get("host", "").lower()

    def _add_headers(self, headers: MutableHeaders, visitor: Visitor | None) -> None:
        for name, value in _HEADERS.items():
            headers[name] = value
        headers.setdefault("Content-Security-Policy", content_security_policy())
        headers.setdefault("Cache-Control", "no-store")
        if self._authenticator.cookies_are_secure:
            headers["Strict-Transport-Security"] = "max-age=31536000"
        if visitor is not None and visitor.is_new:
            headers.append("Set-Cookie", self._authenticator.set_cookie(visitor.session, lasting=False))


async def _read_body(request: Request) -> bytes | None:
    """The body; None: it is too large."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BODY_BYTES:
            return None
    return body


def _replayed(body: bytes, receive: Receive) -> Callable[[], Awaitable[Message]]:
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _csrf_token(headers: Headers, body: bytes) -> str:
    if token := headers.get(CSRF_HEADER):
        return token
    if headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        return ""
    try:
        return parse_qs(body.decode("ascii"), max_num_fields=2000).get(CSRF_FIELD, [""])[0]
    except ValueError:
        return ""
