"""What one client may cost the web server: places, time and bytes, for every connection that uvicorn serves.

`uvicorn.Config(app, **limited(…))` adopts them. uvicorn and httptools have no limit of their own on a head or on how
long it takes to come.
"""

import asyncio
import enum
import http
import ssl
from collections.abc import Sequence
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from clientmgr.base.connection_places import Places
from clientmgr.base.forwarded import Network, client_address, is_trusted
from clientmgr_dashboard.metrics import TURNED_AWAY

BACKLOG: Final = 256
MOST_HEAD_BYTES: Final = 32 * 1024
MOST_BARREN_BYTES: Final = 128 * 1024
"""Of a body, without a byte of content among them: sizes of chunks, their extensions, trailers."""
FED_AT_ONCE: Final = 64 * 1024

HANDSHAKE_WITHIN_S = 10.0
HEAD_WITHIN_S = 10.0
BODY_STALLED_S = 30.0
BODY_WITHIN_S = 120.0
ANSWER_STALLED_S = 30.0
"""A client that takes none of its answer for so long is gone. While it takes some, it may take its time."""
LINGER_S = 1.0
"""How long we go on reading after a refusal. Closed at once, the client would lose the answer that says why."""


class _Phase(enum.Enum):
    HANDSHAKE = enum.auto()
    IDLE = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()
    ANSWER = enum.auto()
    ENDING = enum.auto()


def limited(places: Places, proxies: Sequence[Network], tls: ssl.SSLContext | None = None) -> dict[str, Any]:
    """What to give to `uvicorn.Config`. With `tls`, give it no certificate: handshakes are limited here too.

    TLS needs asyncio's own loop. uvloop reads from a new connection before it can be told to wait.
    """
    if tls is not None and not isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop):
        raise RuntimeError("limited TLS needs asyncio's own event loop")

    class Limited(LimitedProtocol):
        _places = places
        _proxies = proxies
        _tls = tls

    return {"http": Limited, "backlog": BACKLOG, "proxy_headers": False}


class LimitedProtocol(HttpToolsProtocol):
    """One connection. uvicorn's protocol parses and answers; this one watches what comes, and when."""

    _places: Places
    _proxies: Sequence[Network]
    _tls: ssl.SSLContext | None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._phase = _Phase.HEAD
        self._head_bytes = 0
        self._has_new_head = False
        self._barren_bytes = 0
        self._body_due = 0.0
        self._due = float("inf")
        self._timer: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._raw: asyncio.Transport | None = None
        self._is_open = False
        self._early: bytearray | None = None
        self._handshake: asyncio.Task[None] | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        raw = self._raw = cast(asyncio.Transport, transport)
        peer = raw.get_extra_info("peername")
        if not self._places.enter(self, str(peer[0]) if isinstance(peer, tuple) else ""):
            self._phase = _Phase.ENDING
            if self._tls is None:
                raw.write(_answer(503))
            raw.close()
            return
        if self._tls is None:
            self._opened(raw)
            return
        self._phase, self._early = _Phase.HANDSHAKE, bytearray()
        self.connections.add(self)
        raw.pause_reading()
        self._handshake = self.loop.create_task(self._shake_hands(raw, self._tls))

    async def _shake_hands(self, raw: asyncio.Transport, context: ssl.SSLContext) -> None:
        try:
            secured = await self.loop.start_tls(
                raw, self, context, server_side=True, ssl_handshake_timeout=HANDSHAKE_WITHIN_S
            )
        except OSError as error:  # a wrong handshake, a closed connection, and a time-out are all one
            if isinstance(error, TimeoutError | ConnectionAbortedError):
                TURNED_AWAY.labels("handshake").inc()
            secured = None
        early, self._early = self._early, None
        if secured is None or raw.is_closing():
            self.connections.discard(self)
            self.cut_off()
            return
        self._opened(secured)
        if early:
            self.data_received(bytes(early))

    def _opened(self, transport: asyncio.Transport) -> None:
        self._is_open = True
        super().connection_made(transport)
        self._begin_head()

    def connection_lost(self, error: Exception | None) -> None:
        self._places.leave(self)
        self._phase = _Phase.ENDING
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_open:
            super().connection_lost(error)
        else:
            self.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        if self._early is not None:
            self._early += data  # sent right behind the handshake
            return
        if self._phase is _Phase.IDLE:
            self._begin_head()
        while data and self._phase is not _Phase.ENDING and not self.transport.is_closing():
            was_head = self._phase is _Phase.HEAD
            room = MOST_HEAD_BYTES - self._head_bytes if was_head else FED_AT_ONCE
            part, data = data[:room], data[room:]
            self._has_new_head = False
            self._barren_bytes += len(part)
            super().data_received(part)
            if self._phase is _Phase.HEAD and was_head and not self._has_new_head:
                self._head_bytes += len(part)
                if self._head_bytes >= MOST_HEAD_BYTES:
                    self._refuse(431, "head")
            elif self._phase is _Phase.BODY and self._barren_bytes > MOST_BARREN_BYTES:
                self._refuse(400, "body")

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._phase is _Phase.ANSWER:
            self._arm(ANSWER_STALLED_S)

    def shutdown(self) -> None:
        if self._is_open:
            super().shutdown()
        else:
            self.cut_off()

    def handle_websocket_upgrade(self) -> None:
        self._phase = _Phase.ANSWER
        self._arm(None)
        self._places.works(self)
        super().handle_websocket_upgrade()
        taken_over = cast(Any, self.transport.get_protocol())
        its_end = taken_over.connection_lost

        def ended(error: Exception | None) -> None:
            self._places.leave(self)
            its_end(error)

        taken_over.connection_lost = ended

    # What the parser finds

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._phase is not _Phase.HEAD:
            self._begin_head()

    def on_headers_complete(self) -> None:
        if self.client is not None and is_trusted(self.client[0], self._proxies):
            forwarded = b",".join(value for name, value in self.headers if name == b"x-forwarded-for")
            address = client_address(self.client[0], forwarded.decode("latin-1"), self._proxies)
            self.scope["client"] = (address, self.client[1])
        self._phase = _Phase.BODY
        self._barren_bytes = 0
        self._body_due = self.loop.time() + BODY_WITHIN_S
        self._arm(BODY_STALLED_S)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._barren_bytes = 0
        self._arm(min(BODY_STALLED_S, self._body_due - self.loop.time()))
        super().on_body(body)

    def on_message_complete(self) -> None:
        is_answered = self.cycle is not None and self.cycle.response_complete
        super().on_message_complete()
        if is_answered:
            self._rest()
        else:
            self._phase = _Phase.ANSWER
            self._arm(None)
            self._places.works(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._phase is _Phase.ANSWER and not self.pipeline:
            self._rest()

    # Deadlines

    def _begin_head(self) -> None:
        if self._phase is not _Phase.ANSWER:  # there a request before it is still being answered
            self._places.waits(self)
        self._phase = _Phase.HEAD
        self._head_bytes = 0
        self._has_new_head = True
        self._arm(HEAD_WITHIN_S)

    def _rest(self) -> None:
        self._phase = _Phase.IDLE
        self._places.waits(self)
        self._arm(self.timeout_keep_alive)

    def _arm(self, seconds: float | None) -> None:
        """Ask what keeps the client after so many seconds; None: we are the ones who keep it waiting."""
        if seconds is None and not self.flow.write_paused:
            self._due = float("inf")
            return
        seconds = ANSWER_STALLED_S if seconds is None else seconds
        self._unsent = 0
        self._due = self.loop.time() + seconds
        # A timer that rings too early looks again: most are never needed.
        if self._timer is None or self._timer.when() > self._due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_at(self._due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._due == float("inf"):
            return
        if self.loop.time() < self._due:
            self._timer = self.loop.call_at(self._due, self._ring)
        else:
            self._expired()

    def _expired(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent:
            is_slow, before = unsent < self._unsent or not self._unsent, unsent
            if not is_slow:
                TURNED_AWAY.labels("answer").inc()
                self.cut_off()
                return
            self._arm(ANSWER_STALLED_S)
            self._unsent = before
        elif self._phase is _Phase.IDLE:
            self.transport.close()
        elif self._phase is _Phase.BODY and self.flow.read_paused:
            self._arm(BODY_STALLED_S)  # it was we who did not read
        elif self._phase in (_Phase.HEAD, _Phase.BODY):
            self._refuse(408, self._phase.name.lower())

    # How it ends

    def cut_off(self) -> None:
        """End it at once. What is unsent is dropped."""
        self._phase = _Phase.ENDING
        self._places.leave(self)
        transport = self.transport if self._is_open else self._raw
        if transport is not None:
            transport.abort()

    def _refuse(self, status: int, reason: str) -> None:
        """Say why, and close. A client that gets an answer just now can't be told."""
        TURNED_AWAY.labels(reason).inc()
        transport, cycle = self.transport, self.cycle
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.cut_off()
            return
        self._phase = _Phase.ENDING
        self._places.waits(self)
        transport.write(_answer(status))
        if cycle is not None and not cycle.response_complete:
            # Whoever reads this request's body learns that there is no more to come.
            cycle.disconnected = True
            cycle.message_event.set()
        if transport.can_write_eof():
            transport.write_eof()
            self.loop.call_later(LINGER_S, self.cut_off)
        else:
            transport.close()


def _answer(status: int) -> bytes:
    phrase = http.HTTPStatus(status).phrase
    retry = "retry-after: 1\r\n" if status == 503 else ""
    return (
        f"HTTP/1.1 {status} {phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(phrase)}\r\n{retry}connection: close\r\n\r\n{phrase}"
    ).encode("ascii")
