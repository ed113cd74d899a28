"""The guard that every request passes first. It finds out whose it is, and whether our own page sent it.

One guard, two doors: the dashboard's and Dagster's. What differs between them, each door says.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clientmgr.base.errors import SettingsError
from clientmgr.base.logs import get_logger
from clientmgr_dashboard.access.attempts import TooManyAttemptsError
from clientmgr_dashboard.access.authentication import COOKIE, Authenticator, SessionsUnknownError, Visitor
from clientmgr_dashboard.access.door import Door

log = get_logger(__name__)

MOST_BODY_BYTES: Final = 1024 * 1024
LOOK_AGAIN_AFTER_S: Final = 5.0
"""How long an open WebSocket may outlive what opened it: a session, a user's password, a process's token."""
POLICY_VIOLATION: Final = 1008

_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """ASGI middleware around a whole application."""

    def __init__(self, app: ASGIApp, *, door: Door, authenticator: Authenticator) -> None:
        self._app = app
        self._door = door
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        visitor: Visitor | None = None

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add_headers(MutableHeaders(scope=message), visitor)
            await send(message)

        refuse = self._door.refuse
        try:
            answer, visitor, body = await self._examine(request)
        except TooManyAttemptsError as error:
            answer, body = refuse(request, error.status, "Too many passwords are tried: try again later."), None
            answer.headers["Retry-After"] = str(error.retry_after_s)
        except SessionsUnknownError:
            answer, body = refuse(request, 503, "The database does not answer."), None
        except SettingsError as error:
            log.error("nobody can be let in", error=str(error))
            answer, body = refuse(request, 503, "The users file can't be read; the log says why."), None
        if answer is not None:
            await answer(scope, receive, send_guarded)
            return
        scope.setdefault("state", {})["visitor"] = visitor
        await self._app(scope, receive if body is None else _replayed(body, receive), send_guarded)

    async def _examine(self, request: Request) -> tuple[Response | None, Visitor | None, bytes | None]:
        """An answer if the request is refused; else whose it is, and the body if it had to be read."""
        door = self._door
        if not self._is_own_host(request.headers):
            return door.refuse(request, 421, f"This is not the address of {door.name}."), None, None
        visitor = await self._visitor(request)
        if visitor is None and not door.is_open(request.url.path):
            return door.ask_to_sign_in(request), None, None
        if request.method in {"GET", "HEAD"}:
            return door.refusal_of_read(request, visitor), visitor, None
        # A change must come from our own page, or from a script.
        if not self.is_same_origin(request.headers):
            return door.refuse(request, 403, "This request comes from another site's page."), None, None
        body = await _read_body(request)
        if body is None:
            return door.refuse(request, 413, f"More than {MOST_BODY_BYTES:,} bytes."), None, None
        return door.refusal_of_change(request, visitor, body), visitor, body

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Browsers let any page open a WebSocket anywhere, cookies included: only ours may."""
        connection = HTTPConnection(scope)
        visitor: Visitor | None = None
        if self._is_own_host(connection.headers) and self.is_same_origin(connection.headers):
            visitor = await self._visitor_if_any(connection)
        if visitor is None:
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})  # before it is accepted: a 403
            return
        scope.setdefault("state", {})["visitor"] = visitor
        looked_at, is_over = time.monotonic(), False

        async def send_while_signed_in(message: Message) -> None:
            nonlocal looked_at, is_over
            if not is_over and time.monotonic() - looked_at > LOOK_AGAIN_AFTER_S:
                looked_at, is_over = time.monotonic(), not await self._is_still_let_in(visitor, connection)
                if is_over:
                    await send({"type": "websocket.close", "code": POLICY_VIOLATION})
            if not is_over:
                await send(message)

        await self._app(scope, receive, send_while_signed_in)

    async def _is_still_let_in(self, visitor: Visitor, connection: HTTPConnection) -> bool:
        """Sessions and processes' tokens are read again, for they expire. Passwords are not tried again."""
        if not visitor.password_mark:
            return await self._visitor_if_any(connection) is not None
        try:
            return self._authenticator.is_unchanged(visitor)
        except SettingsError as error:
            log.warning("a WebSocket is ended", error=str(error))
            return False

    async def _visitor_if_any(self, connection: HTTPConnection) -> Visitor | None:
        try:
            return await self._visitor(connection)
        except (TooManyAttemptsError, SessionsUnknownError, SettingsError) as error:
            log.warning("a WebSocket is refused", error=str(error))
            return None

    async def _visitor(self, connection: HTTPConnection) -> Visitor | None:
        cookie, path = connection.cookies.get(COOKIE), connection.url.path
        try:
            if cookie and (visitor := self._authenticator.of_cookie(cookie, leaving=path == "/sign-out")):
                return visitor
        except SessionsUnknownError:
            if not self._door.is_open(path):
                raise
        if not self._authenticator.sign_in_needed:
            return self._authenticator.at_this_machine()
        if (header := connection.headers.get("authorization")) and self._door.takes_password(connection):
            address = connection.client.host if connection.client else ""
            return await self._authenticator.of_authorization(header, address)
        return None

    def _is_own_host(self, headers: Headers) -> bool:
        """Where people sign in, a page whose name points here (DNS rebinding) has no cookie. Elsewhere, this helps.

        Of two names a proxy before us may go by the other.
        """
        hosts = headers.getlist("host")
        return len(hosts) < 2 and (self._authenticator.sign_in_needed or "".join(hosts).lower() in self._door.hosts)

    def is_same_origin(self, headers: Headers) -> bool:
        return is_same_origin(headers, self._door.origin)

    def _add_headers(self, headers: MutableHeaders, visitor: Visitor | None) -> None:
        for name, value in _HEADERS.items():
            headers[name] = value
        if self._authenticator.cookies_are_secure:
            headers["Strict-Transport-Security"] = "max-age=31536000"
        self._door.add_headers(headers, visitor)


def is_same_origin(headers: Headers, own_origin: str) -> bool:
    """By headers that browsers set and no page can change. Scripts do not send them, which is fine."""
    if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        return False
    origin = headers.get("origin", "").lower()
    return not origin or origin == own_origin or urlsplit(origin).netloc == headers.get("host", "").lower()


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
