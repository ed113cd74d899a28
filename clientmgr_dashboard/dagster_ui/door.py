"""Dagster's door: no change by GET, changes as JSON and by operators only, and nothing but subscriptions by WebSocket.

Dagster's pages can't send the token that the dashboard's forms carry. Instead, no other site's page can send JSON with
our Origin, or the session's cookie along (SameSite).
"""

from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clientmgr.base.settings import Settings
from clientmgr_dashboard.access.addresses import dagster_beside, dashboard_beside, own_hosts
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.access.door import Door
from clientmgr_dashboard.access.guard import POLICY_VIOLATION, is_same_origin
from clientmgr_dashboard.access.users import Role
from clientmgr_dashboard.dagster_ui import routes
from clientmgr_dashboard.dagster_ui.graphql_requests import (
    QUERY,
    SUBSCRIPTION,
    UnclearRequestError,
    operations_in,
    operations_of_body,
    operations_of_frame,
)
from clientmgr_dashboard.problems import problem, problem_response

JSON = "application/json"


class DagsterDoor(Door):
    name = "Dagster's UI"

    def __init__(self, settings: Settings, port: int) -> None:
        self._settings = settings.model_copy(update={"dagster_port": port})
        self.hosts = own_hosts(settings.dagster_host, port, settings.dagster_url)
        self.origin = settings.dagster_url.lower()

    def is_open(self, path: str) -> bool:
        return routes.is_open(path)

    def takes_password(self, _connection: HTTPConnection) -> bool:
        return True

    def ask_to_sign_in(self, request: Request) -> Response:
        """People sign in to the dashboard: its cookie counts here too."""
        if request.method != "GET" or "text/html" not in request.headers.get("accept", ""):
            return self.refuse(request, 401, "Sign in to the dashboard, or send name and password with the request.")
        host = request.headers.get("host", "")
        query = f"?{request.url.query}" if request.url.query else ""
        wanted = f"{dagster_beside(self._settings, host)}{quote(request.url.path)}{query}"
        return RedirectResponse(f"{dashboard_beside(self._settings, host)}/sign-in?next={quote(wanted, safe='')}", 303)

    def refuse(self, _request: Request, status: int, detail: str) -> Response:
        return problem_response(problem(status, detail))

    def refusal_of_read(self, request: Request, _visitor: Visitor | None) -> Response | None:
        documents = request.query_params.getlist("query")
        if request.url.path != routes.GRAPHQL or not documents:
            return None
        if not is_same_origin(request.headers, self.origin):
            return self.refuse(request, 403, "This request comes from another site's page.")
        if len(documents) > 1:
            return self.refuse(request, 400, "`query`: more than one")
        try:
            operations = operations_in(documents[0])
        except UnclearRequestError as unclear:
            return self.refuse(request, 400, str(unclear))
        return None if operations == QUERY else self.refuse(request, 405, "A GET only reads: send this by POST.")

    def refusal_of_change(self, request: Request, visitor: Visitor | None, body: bytes) -> Response | None:
        needs = routes.needs_of_change(request.url.path)
        if request.method != "POST" or needs is None or visitor is None:
            return self.refuse(request, 405, "Nothing is changed here, or not by this method.")
        # What a form of another site's page can send, without asking first, is never JSON.
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            return self.refuse(request, 415, f"Send it as {JSON}.")
        needed = Role.OPERATOR
        if needs is routes.Needs.OPERATION:
            try:
                if "query" in request.query_params:
                    raise UnclearRequestError("`query`: in the address; expected in the body only")
                needed = Role.VIEWER if operations_of_body(body) == QUERY else Role.OPERATOR
            except UnclearRequestError as unclear:
                return self.refuse(request, 400, str(unclear))
        if not visitor.role.includes(needed):
            return self.refuse(request, 403, f"This needs the role {needed}; yours is {visitor.role}.")
        return None

    def add_headers(self, headers: MutableHeaders, _visitor: Visitor | None) -> None:
        """The page has a policy of its own. It shows notebooks in frames of its own origin."""
        headers["X-Frame-Options"] = "SAMEORIGIN"
        policy = headers.get("content-security-policy", "").rstrip("; ")
        headers["Content-Security-Policy"] = "; ".join(filter(None, [policy, "frame-ancestors 'self'"]))
        if headers.get("content-type", "").startswith((JSON, "text/html")):
            headers.setdefault("Cache-Control", "no-store")


class SubscriptionsOnly:
    """ASGI middleware: a WebSocket follows what happens, and does nothing else. Any other frame closes it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return

        async def receive_subscriptions() -> Message:
            message = await receive()
            if message["type"] != "websocket.receive":
                return message
            try:
                operations = operations_of_frame(message.get("text"))
                reason = "" if operations <= SUBSCRIPTION else "only subscriptions are served here"
            except UnclearRequestError as unclear:
                reason = str(unclear)
            if not reason:
                return message
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": reason})
            return {"type": "websocket.disconnect", "code": POLICY_VIOLATION}

        await self._app(scope, receive_subscriptions, send)
