"""Plain HTTP on the WebSocket port: the page and health."""

import functools
from html import escape
from importlib.resources import files
from typing import Final
from urllib.parse import urlsplit

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
    "/live/tiles.js": ("tiles.js", "text/javascript; charset=utf-8"),
    "/live/drawing.js": ("drawing.js", "text/javascript; charset=utf-8"),
    "/live/map.js": ("map.js", "text/javascript; charset=utf-8"),
}
# The page loads nothing from elsewhere but tiles. Only the dashboard may show it in a frame.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src {}; base-uri 'none'; "
    "form-action 'none'; frame-ancestors {}"
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
        body = _file(name)
        headers = {
            "Content-Security-Policy": policy(hub.settings),
            # Who serves tiles may ask for a referrer, and learns no more than our origin: no event, no token.
            "Referrer-Policy": "strict-origin" if hub.settings.live_tiles_url else "no-referrer",
        }
        return _response(200, content_type, page(body, hub.settings) if name == "live.html" else body, headers)
    return _response(404, PLAIN_TEXT, b"there are /ws, /live and /healthz")


def refusal(status: int, why: str) -> Response:
    """The answer to a request that is not looked at any further."""
    return _response(status, PLAIN_TEXT, why.encode())


def policy(settings: Settings) -> str:
    tiles = urlsplit(settings.live_tiles_url)
    images = f"data: {tiles.scheme}://{tiles.netloc}" if settings.live_tiles_url else "data:"
    return _POLICY.format(images, " ".join(dashboard_origins(settings)))


def page(template: bytes, settings: Settings) -> bytes:
    """The page with what the settings say of its map."""
    text = template.decode()
    text = text.replace('data-tiles=""', f'data-tiles="{escape(settings.live_tiles_url)}"')
    attribution = escape(settings.live_tiles_attribution) if settings.live_tiles_url else ""
    return text.replace('<p id="attribution"></p>', f'<p id="attribution">{attribution}</p>').encode()


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
