"""Plain HTTP on the WebSocket port: the page and health."""

import functools
from importlib.resources import files
from typing import Final

from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from clientmgr.base.metrics_server import PLAIN_TEXT
from clientmgr.base.settings import Settings
from streaming.live.broadcast.hub import Hub

PAGE: Final = {
    "/live": ("live.html", "text/html; charset=utf-8"),
    "/live/live.css": ("live.css", "text/css; charset=utf-8"),
    "/live/live.js": ("live.js", "text/javascript; charset=utf-8"),
    "/live/client.js": ("client.js", "text/javascript; charset=utf-8"),
    "/live/map.js": ("map.js", "text/javascript; charset=utf-8"),
}
# The page loads nothing from elsewhere. Only the dashboard may show it in a frame.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors"
)
_REASONS: Final = {
    200: "OK",
    404: "Not Found",
    405: "Method Not Allowed",
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


def answer(hub: Hub, request: Request, path: str) -> Response:
    """The answer to a request that is not for a WebSocket."""
    if request.method != "GET":
        return _response(405, PLAIN_TEXT, b"only GET")
    if path == "/healthz":
        problem = hub.problem()
        return _response(503 if problem else 200, PLAIN_TEXT, (problem or "ok").encode())
    if path in PAGE:
        name, content_type = PAGE[path]
        policy = f"{_POLICY} {' '.join(dashboard_origins(hub.settings))}"
        headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}
        return _response(200, content_type, _file(name), headers)
    return _response(404, PLAIN_TEXT, b"there are /ws, /live and /healthz")


def refusal(status: int, why: str) -> Response:
    """The answer to a request that is not looked at any further."""
    return _response(status, PLAIN_TEXT, why.encode())


def dashboard_origins(settings: Settings) -> list[str]:
    """The origins of the dashboard, which shows the page in a frame."""
    if settings.dashboard_url:
        return [settings.dashboard_url]
    host, port = settings.dashboard_host, settings.dashboard_port
    names = [host, "localhost"] if host == "127.0.0.1" else [f"[{host}]" if ":" in host else host]
    scheme = "https" if settings.dashboard_tls_certificate else "http"
    return [f"{scheme}://{name}:{port}" for name in names]


@functools.cache
def _file(name: str) -> bytes:
    return (files("streaming.live.broadcast") / "page" / name).read_bytes()


def _response(status: int, content_type: str, body: bytes, more: dict[str, str] | None = None) -> Response:
    headers = Headers(
        {
            "Content-Type": content_type,
            "Content-Length": str(len(body)),
            "Connection": "close",
            "Cache-Control": "no-cache",
            "X-Content-Type-Options": "nosniff",
            **(more or {}),
        }
    )
    return Response(status, _REASONS[status], headers, body)
