"""Serves a daemon's Prometheus metrics and its health on METRICS_PORT. What is measured is defined where it happens.

Metrics name topics and customers' numbers, so others than this machine need METRICS_TOKEN. Health is open to all, for
probes can't send a token: it says whether the daemon is well and no more.
"""

import asyncio
import contextlib
import errno
import hmac
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

from clientmgr.base.errors import SettingsError
from clientmgr.base.exposure import ensure_not_open_to_others, is_loopback
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings

log = get_logger(__name__)

PLAIN_TEXT = "text/plain; charset=utf-8"
BEAT_S = 1.0
STUCK_AFTER_S = 15.0
MOST_AT_ONCE = 16
"""Connections. Each takes a thread and a file, which the daemon needs for its own work."""
REQUEST_WITHIN_S = 10.0
"""How long a client may take to send its whole request, and again to read the answer."""
ROOM_WITHIN_S = 1.0

Health = Callable[[], str]
"""What is wrong, in a few words; empty: nothing."""


@contextlib.asynccontextmanager
async def serve_metrics(settings: Settings, *, stuck_after_s: float = STUCK_AFTER_S) -> AsyncIterator[None]:
    """Serve `/metrics` and `/healthz` on METRICS_HOST meanwhile, where METRICS_PORT is set.

    A thread answers: what a busy event loop does to us is to be seen in the numbers, not as scrapes that fail. The
    daemon is healthy for as long as its event loop turns.
    """
    if not settings.metrics_port:
        yield
        return
    last_beat = time.monotonic()

    async def beat() -> None:
        nonlocal last_beat
        while True:
            last_beat = time.monotonic()
            await asyncio.sleep(BEAT_S)

    def health() -> str:
        silence_s = time.monotonic() - last_beat
        return f"the event loop has been stuck for {silence_s:.0f} s" if silence_s > stuck_after_s else ""

    with _http_server(settings, health):
        heart = asyncio.create_task(beat(), name="heartbeat")
        try:
            yield
        finally:
            heart.cancel()


@contextlib.contextmanager
def _http_server(settings: Settings, health: Health) -> Iterator[None]:
    host, port = settings.metrics_host, settings.metrics_port
    token = settings.metrics_token.get_secret_value()
    ensure_not_open_to_others(
        "/metrics", "METRICS_HOST", host, protected=bool(token), protect_by="set METRICS_TOKEN for whoever scrapes"
    )
    try:
        server = _Server((host, port), _handler(health, token))
    except OSError as error:
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise SettingsError(
                f"METRICS_HOST: expected an address of this machine, got {host!r} ({error.strerror})"
            ) from None
        raise SettingsError(
            f"METRICS_PORT: expected a free port, got {port} ({error.strerror}); every daemon needs its own, or 0"
        ) from None
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="metrics", daemon=True)
    thread.start()
    log.info("metrics are served", host=host, port=port)
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    """A connection that still owes us its request gives way to a newer one; one that we answer never does."""

    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._taken: set[Any] = set()
        self._waiting: dict[Any, float] = {}
        """Since when, the longest first."""
        self._changed = threading.Condition()
        super().__init__(address, handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Take a place; False: all are answered to, and none became free."""
        with self._changed:
            if len(self._taken) >= MOST_AT_ONCE and self._waiting:
                self._cut_off(next(iter(self._waiting)))
            if not self._changed.wait_for(lambda: len(self._taken) < MOST_AT_ONCE, ROOM_WITHIN_S):
                return False
            self._taken.add(request)
            self._waiting[request] = time.monotonic()
        return True

    def service_actions(self) -> None:
        """A byte now and then keeps nobody here: the limit is for the whole request."""
        with self._changed:
            too_old = time.monotonic() - REQUEST_WITHIN_S
            for request in [request for request, since in self._waiting.items() if since < too_old]:
                self._cut_off(request)

    def is_complete(self, request: Any) -> bool:
        """From now on its client waits for us. False: it was cut off, and what came of it is only a part."""
        with self._changed:
            return self._waiting.pop(request, None) is not None

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._changed:
            self._taken.discard(request)
            self._waiting.pop(request, None)
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever leaves early, or is cut off, is no news."""
        if not isinstance(sys.exception(), OSError):
            log.exception("a request for metrics failed")

    def _cut_off(self, request: Any) -> None:
        """Its thread reads the end of the connection, and gives the place back."""
        del self._waiting[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)


def _handler(health: Health, token: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server: _Server
        timeout = REQUEST_WITHIN_S  # of each read, and of a whole answer; `_Server` limits the whole request

        def do_GET(self) -> None:
            if not self.server.is_complete(self.connection):
                return
            if not token and not _names_this_machine(self.headers.get("Host")):
                self._answer(421, PLAIN_TEXT, b"this is not the address of the metrics")
                return
            match self.path.partition("?")[0]:
                case "/metrics":
                    self._answer_metrics()
                case "/healthz":
                    self._answer_health()
                case _:
                    self._answer(404, PLAIN_TEXT, b"there are /metrics and /healthz")

        def _answer_metrics(self) -> None:
            if token and not is_bearer(self.headers.get("Authorization"), token):
                self._answer(401, PLAIN_TEXT, b"send METRICS_TOKEN as a bearer token", {"WWW-Authenticate": "Bearer"})
                return
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
            self._answer(200, content_type, encode(REGISTRY))

        def _answer_health(self) -> None:
            if problem := health():
                log.warning("not well", problem=problem)
            self._answer(503 if problem else 200, PLAIN_TEXT, b"not well" if problem else b"ok")

        def _answer(self, status: int, content_type: str, body: bytes, more: dict[str, str] | None = None) -> None:
            self.send_response(status)
            headers = {"Content-Type": content_type, "Content-Length": str(len(body)), **(more or {})}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def version_string(self) -> str:
            """What we are made of is nobody's business."""
            return "clientmgr"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class calls it so
            """A scrape every few seconds is no news."""

    return Handler


def is_bearer(authorization: str | None, token: str) -> bool:
    """Whether the header carries the token. How long the answer takes says nothing about how much of it was right."""
    scheme, _, sent = (authorization or "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(sent.strip().encode(), token.encode())


def _names_this_machine(host: str | None) -> bool:
    """Whether a request is for this machine by name. A page whose own name leads here by DNS is none of ours.

    Every browser says which name it looked up. What says none is no browser.
    """
    if host is None:
        return True
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
