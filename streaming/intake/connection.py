"""A connection to the intake: HTTP/1.1 on llhttp (httptools), one request at a time, and the limits of all of it.

No framework: a request costs one task, one publish and one write. What a request means is the matter of `handling`.
"""

import asyncio
import email.utils
import functools
import http
import time
from collections import deque
from typing import Any, Final, cast

import httptools

from clientmgr.base.connection_places import Places
from clientmgr.base.logs import get_logger
from streaming.intake.handling import Desk
from streaming.intake.http_messages import Request, Response
from streaming.intake.intake_metrics import CONNECTIONS, REQUESTS, TURNED_AWAY
from streaming.intake.problems import PROBLEM_JSON, RefusedError

log = get_logger(__name__)

MOST_BARREN_BYTES: Final = 16 * 1024
"""Without a byte of a body among them: a head, sizes of chunks and their extensions, trailers. The parser has no limit
of its own, and takes the longer over a field the longer it is."""
MOST_HEADERS: Final = 64
REQUEST_WITHIN_S: Final = 15.0
"""How long a client may take for a whole request, and for reading the answer."""
IDLE_WITHIN_S: Final = 75.0
"""How long a connection may be silent between requests: longer than most proxies keep theirs."""
ANSWER_WITHIN_S: Final = 30.0
MOST_BUFFERED_BYTES: Final = 64 * 1024 * 1024
"""Of requests' bodies in all. More is answered with 503."""
_READ: Final = {
    name.encode(): name
    for name in (
        "authorization",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "idempotency-key",
        "origin",
        "x-forwarded-for",
    )
}
"""Headers that mean something here. Nobody else's are kept."""
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class House:
    """What all connections share."""

    def __init__(self, desk: Desk, places: Places, most_body_bytes: int) -> None:
        self.desk = desk
        self.places = places
        self.most_body_bytes = most_body_bytes
        self.connections: set[Connection] = set()
        self.buffered_bytes = 0
        self.is_closing = False
        self.everybody_left = asyncio.Event()

    def check(self) -> None:
        """Called every second: end what takes too long."""
        now = time.monotonic()
        for connection in list(self.connections):
            connection.check(now)

    def close(self) -> None:
        """Requests that have begun are answered; what is silent ends now."""
        self.is_closing = True
        for connection in list(self.connections):
            connection.close_if_idle()
        if not self.connections:
            self.everybody_left.set()


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[tuple[Request, bool]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._peer = ""
        self._is_refused = False
        self._is_stalled = False
        self._due_at = time.monotonic() + REQUEST_WITHIN_S
        self._begin()

    def _begin(self) -> None:
        self._in_head = True
        self._has_begun = False
        self._barren_bytes = 0
        self._url = b""
        self._headers: dict[str, str] = {}
        self._header_count = 0
        self._body: list[bytes] = []
        self._body_bytes = 0

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        self._peer = str(name[0]) if name else ""
        if self._house.is_closing or not self._house.places.enter(self, self._peer):
            self._transport.abort()
            return
        self._house.connections.add(self)
        CONNECTIONS.set(len(self._house.connections))

    def connection_lost(self, exc: Exception | None) -> None:
        house = self._house
        house.connections.discard(self)
        house.places.leave(self)
        self._release(self._body_bytes)
        self._body_bytes = 0
        # A request under way goes on: its events are perhaps in the log already.
        self._forget_queue()
        CONNECTIONS.set(len(house.connections))
        if house.is_closing and not house.connections:
            house.everybody_left.set()

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), MOST_BARREN_BYTES):
            if not self._is_refused:
                self._feed(data[start : start + MOST_BARREN_BYTES])

    def _feed(self, data: bytes) -> None:
        if self._in_head and not self._has_begun:
            self._has_begun = True
            if self._task is None:
                self._due_at = time.monotonic() + REQUEST_WITHIN_S
        self._barren_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(400, "Upgrade: expected none; the intake speaks HTTP/1.1 alone")
        except httptools.HttpParserError as error:
            self._refuse(400, f"expected HTTP/1.1 ({error})"[:200])
        if self._barren_bytes > MOST_BARREN_BYTES:
            self._refuse(431, f"at most {MOST_BARREN_BYTES} bytes before, between and after what the body holds")

    def eof_received(self) -> bool:
        """Whoever sent all it wanted to may still read its answer."""
        return self._task is not None

    def pause_writing(self) -> None:
        self._is_stalled = True
        self._due_at = time.monotonic() + REQUEST_WITHIN_S

    def resume_writing(self) -> None:
        self._is_stalled = False

    # What the parser calls

    def on_message_begin(self) -> None:
        self._has_begun = True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        if self._header_count > MOST_HEADERS:
            self._refuse(431, f"at most {MOST_HEADERS} headers")
            return
        key = _READ.get(name.lower())
        if key is None:
            return
        text = value.decode("latin-1").strip(" \t")
        given = self._headers.get(key)
        self._headers[key] = text if given is None else f"{given}, {text}"

    def on_headers_complete(self) -> None:
        if self._is_refused:
            return
        self._in_head = False
        self._barren_bytes = 0
        length = self._headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._house.most_body_bytes:
            self._refuse_body()
        elif self._headers.get("expect", "").lower() == "100-continue" and self._task is None:
            self._transport.write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        if self._is_refused:
            return
        self._barren_bytes = 0
        self._body_bytes += len(body)
        self._house.buffered_bytes += len(body)
        if self._body_bytes > self._house.most_body_bytes:
            self._refuse_body()
        elif self._house.buffered_bytes > MOST_BUFFERED_BYTES:
            self._refuse(503, "too much at once; try again")
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self._is_refused:
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        method = self._parser.get_method().decode("latin-1")
        request = Request(method, self._url.decode("utf-8", "surrogateescape"), self._headers, body, self._peer)
        self._begin()
        self._queue.append((request, self._parser.should_keep_alive()))
        if self._task is None:
            self._next()
        else:
            self._transport.pause_reading()

    # Answering

    def _next(self) -> None:
        request, keep_alive = self._queue.popleft()
        self._house.places.works(self)
        self._due_at = time.monotonic() + ANSWER_WITHIN_S
        self._task = asyncio.get_running_loop().create_task(self._answer(request, keep_alive))

    async def _answer(self, request: Request, keep_alive: bool) -> None:
        try:
            response = await self._house.desk.answer(request)
        finally:
            self._task = None
            self._release(len(request.body))
        if self._transport.is_closing():
            return
        keep_alive = keep_alive and not self._house.is_closing and not self._is_refused
        self._transport.write(_encoded(response, keep_alive, head_only=request.method == "HEAD"))
        if not keep_alive:
            self._transport.close()
        elif self._queue:
            self._next()
        else:
            self._due_at = time.monotonic() + (REQUEST_WITHIN_S if self._has_begun else IDLE_WITHIN_S)
            self._house.places.waits(self)
            if not self._transport.is_reading():
                self._transport.resume_reading()

    def _refuse_body(self) -> None:
        self._refuse(413, f"at most {self._house.most_body_bytes} bytes in a body")

    def _refuse(self, status: int, detail: str) -> None:
        """Answer now and end: what follows on this connection can't be understood, or is not wanted."""
        if self._is_refused:
            return
        self._is_refused = True
        self._release(self._body_bytes)
        self._body, self._body_bytes = [], 0
        if self._task is None and not self._transport.is_closing():
            refusal = RefusedError(status, detail)
            REQUESTS.labels(status).inc()
            headers = (("retry-after", "1"),) if status == http.HTTPStatus.SERVICE_UNAVAILABLE else ()
            self._transport.write(_encoded(Response(status, refusal.body, PROBLEM_JSON, headers), False))
            self._transport.close()

    def _forget_queue(self) -> None:
        for request, _ in self._queue:
            self._release(len(request.body))
        self._queue.clear()

    def _release(self, size: int) -> None:
        self._house.buffered_bytes -= size

    # Limits

    def check(self, now: float) -> None:
        """End it if it is late: with its request, with reading our answer, or with silence."""
        if now < self._due_at:
            return
        if self._task is not None and not self._is_stalled:
            # It may yet reach the log: whoever sends the same again changes nothing.
            self._task.cancel()
            self._task = None
            self._forget_queue()
            self._refuse(503, "the log did not take it in time, or did not say so; send the same again")
        elif self._has_begun and not self._is_stalled:
            TURNED_AWAY.labels("request").inc()
            self._refuse(408, f"expected a whole request within {REQUEST_WITHIN_S:.0f} s")
        else:
            TURNED_AWAY.labels("answer" if self._is_stalled else "idle").inc()
            self._transport.abort()

    def cut_off(self) -> None:
        self._transport.abort()

    def close_if_idle(self) -> None:
        if self._task is None and not self._has_begun:
            self._transport.close()


@functools.lru_cache(maxsize=4)
def _date(_second: int) -> str:
    return email.utils.formatdate(usegmt=True)


def _encoded(response: Response, keep_alive: bool, *, head_only: bool = False) -> bytes:
    """As bytes. A body after HEAD would be taken for the next answer: behind a proxy, for another caller's."""
    head = [
        _status_line(response.status),
        f"date: {_date(int(time.time()))}\r\ncontent-length: {len(response.body)}\r\n",
        "cache-control: no-store\r\nx-content-type-options: nosniff\r\n",
    ]
    if response.body:
        head.append(f"content-type: {response.content_type}\r\n")
    head += [f"{name}: {value}\r\n" for name, value in response.headers]
    head.append("\r\n" if keep_alive else "connection: close\r\n\r\n")
    return "".join(head).encode("latin-1") + (b"" if head_only else response.body)


@functools.cache
def _status_line(status: int) -> str:
    return f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n"


def protocol(house: House) -> Any:
    return functools.partial(Connection, house)
