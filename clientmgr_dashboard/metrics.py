"""Counts requests, how long they take, and whom we turn away. Labels are routes: a path may hold somebody's id."""

import time
from collections.abc import Sequence

from prometheus_client import Counter, Histogram
from starlette.requests import ClientDisconnect
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUEST_SECONDS = Histogram(
    "clientmgr_dashboard_request_seconds",
    "How long the dashboard took to answer.",
    ["method", "route", "status"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 15),
)
TURNED_AWAY = Counter(
    "clientmgr_dashboard_connections_turned_away_total",
    "Connections that were refused, closed to make room, or cut off because nothing came.",
    ["reason"],
)
CLOSED_BY_CLIENT = 499
_METHODS = frozenset({"GET", "HEAD", "POST"})


class Measured:
    """ASGI middleware around everything else."""

    def __init__(self, app: ASGIApp, routes: Sequence[Route]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.monotonic(), 500

        async def send_measured(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_measured)
        except ClientDisconnect:
            status = CLOSED_BY_CLIENT
            raise
        finally:
            method = scope["method"] if scope["method"] in _METHODS else "other"
            REQUEST_SECONDS.labels(method, self._route(scope), str(status)).observe(time.monotonic() - started)

    def _route(self, scope: Scope) -> str:
        return next((route.path for route in self._routes if route.matches(scope)[0] is not Match.NONE), "unknown")
