"""One connection: handshake, incoming messages, limits, and its end. websockets parses; we do every write."""

import asyncio
import logging
import socket
import struct
from typing import cast
from urllib.parse import parse_qs, urlsplit

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from clientmgr.base.logs import get_logger
from clientmgr.live.tokens import EVERYTHING, Grant
from streaming.live.broadcast import commands, http
from streaming.live.broadcast.broadcast_metrics import CONFLATED, CONNECTIONS, DROPPED, REFUSED
from streaming.live.broadcast.frames import PING
from streaming.live.broadcast.hub import Hub
from streaming.live.broadcast.sending.outbox import Outbox
from streaming.live.broadcast.subscriptions import Topic

log = get_logger(__name__)
_quiet = logging.getLogger("websockets.live")
_quiet.setLevel(logging.WARNING)  # at INFO it logs every connection

WEBSOCKET_PATH = "/ws"
HANDSHAKE_WITHIN_S = 10.0
TOKEN_WITHIN_S = 10.0
ABORT_AFTER_S = 1.0
SPARE_CONNECTIONS = 128
"""Beyond LIVE_WS_MAX_CONNECTIONS, for plain HTTP and for clients that get the answer "too many connections". Any
further connection is cut off at once: otherwise silent connections could use up all open files.
"""
LARGEST_FRAME = 65_536
"""A message above LIVE_WS_MAX_FRAME_BYTES gets an error. One above this is not read: it is closed with 1009."""


class Connection(asyncio.Protocol):
    """The server makes one for each accepted connection."""

    outbox: Outbox
    _transport: asyncio.Transport

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._protocol = ServerProtocol(max_size=LARGEST_FRAME, logger=_quiet)
        self._text: bytearray | None = None  # the fragments of a message so far; websockets limits their size
        self._closing = False
        self._abort: asyncio.TimerHandle | None = None
        self._opened_at = self._heard_at = self._pinged_at = hub.loop.time()
        self.grant: Grant | None = None
        self.subscriptions: dict[str, Topic] = {}

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        hub = self._hub
        self._transport = cast(asyncio.Transport, transport)
        self.outbox = Outbox(
            self._transport,
            hub.settings.live_ws_backpressure_threshold_bytes,
            CONFLATED.labels(hub.instance),
            too_slow=lambda: self.drop("threshold"),
            set_apart=self._set_apart,
            clock=hub.loop.time,
        )
        hub.transports.add(self)
        hub.everybody_left.clear()
        if len(hub.transports) > hub.settings.live_ws_max_connections + SPARE_CONNECTIONS:
            REFUSED.labels(CloseCode.ABNORMAL_CLOSURE).inc()
            self._closing = True
            self.cut_off()

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._leave()
        self._hub.transports.discard(self)
        if not self._hub.transports:
            self._hub.everybody_left.set()
        if self._abort is not None:
            self._abort.cancel()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._hub.loop.time()
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._begin(event)
            elif not self._closing:
                self._take(cast(Frame, event))
        self._flush()

    def eof_received(self) -> None:
        self._protocol.receive_eof()
        self._flush()

    def pause_writing(self) -> None:
        self.outbox.paused()

    def resume_writing(self) -> None:
        self.outbox.resumed()

    # For commands

    def subscribe(self, event: str) -> Topic:
        self._set_apart()
        topic = self.subscriptions[event] = self._hub.topics.subscribe(event, self)
        return topic

    def unsubscribe(self, event: str) -> None:
        if self.subscriptions.pop(event, None) is not None:
            self._set_apart()
            self._hub.topics.unsubscribe(event, self)
            self.outbox.forget(event)

    # For the sender

    def descriptor(self) -> int:
        return cast(int, self._transport.get_extra_info("socket").fileno())

    def cut_off(self) -> None:
        """At once, and drop what the kernel holds for the client: it would try to deliver that for minutes."""
        own_socket = self._transport.get_extra_info("socket")
        if own_socket is not None and not self._transport.is_closing():
            own_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _set_apart(self) -> None:
        self._hub.sender.set_apart(self)

    # How it ends

    def refuse(self, code: int, reason: str) -> None:
        """Close a client that may not be here, and tell it why."""
        REFUSED.labels(code).inc()
        self.close(code, reason)

    def drop(self, reason: str) -> None:
        """Close a client that is too slow. What waits for it is dropped: the close frame would wait behind it."""
        if self._closing:
            return
        DROPPED.labels(self._hub.instance, reason).inc()
        log.warning(
            "a connection is too slow, closing it",
            reason=reason,
            unsent_bytes=self.outbox.unsent_bytes,
            topics=len(self.subscriptions),
        )
        self.close(CloseCode.POLICY_VIOLATION, "too slow")

    def close(self, code: int, reason: str) -> None:
        """Send a close frame, and hang up within a second whether the client answers or not."""
        if self._closing:
            return
        self._closing = True
        self._leave()
        if self._protocol.state is OPEN:
            self._protocol.send_close(code, reason)
        self._flush()
        self._abort = self._hub.loop.call_later(ABORT_AFTER_S, self.cut_off)

    def check(self, now: float, wall_clock: float) -> None:
        """Called now and then. Is the client still there, does it read what it gets, may it still see it?"""
        settings = self._hub.settings
        ping_interval = settings.live_ws_ping_interval_ms / 1000
        self.outbox.check()
        if self._closing:
            return
        if self not in self._hub.watchers:
            if now - self._opened_at > HANDSHAKE_WITHIN_S:
                self.cut_off()
        elif self.grant is None:
            if now - self._opened_at > TOKEN_WITHIN_S:
                self.refuse(commands.UNAUTHENTICATED, "no token came")
        elif self.grant.expires_at <= wall_clock:
            self.refuse(commands.UNAUTHENTICATED, "the token has expired")
        elif self.outbox.stalled_for() * 1000 > settings.live_ws_stall_timeout_ms:
            self.drop("stalled")
        elif self.outbox.slow:
            self._heard_at = now  # a ping would only wait behind what is unsent
        elif now - self._heard_at > ping_interval:
            if self._pinged_at <= self._heard_at:
                self._pinged_at = now
                self.outbox.write(PING)
            elif now - self._pinged_at > ping_interval:
                self.cut_off()

    # Incoming

    def _begin(self, request: Request) -> None:
        path, _, query = request.path.partition("?")
        if path != WEBSOCKET_PATH:
            self._protocol.send_response(http.answer(self._hub, request, path))
            return
        response = self._protocol.accept(request)
        self._protocol.send_response(response)
        if response.status_code != 101:
            return
        self._flush()
        hub = self._hub
        if len(hub.watchers) >= hub.settings.live_ws_max_connections:
            self.refuse(CloseCode.TRY_AGAIN_LATER, "too many connections")
            return
        hub.watchers.add(self)
        CONNECTIONS.set(len(hub.watchers))
        token = parse_qs(query).get("token", [""])[-1]
        if not origin_is_allowed(request, hub.settings.live_allowed_origins):
            self.refuse(commands.FORBIDDEN, "this page's origin is not allowed")
        elif hub.settings.live_auth == "off":
            self.grant = EVERYTHING
        elif token:
            commands.authenticate(hub, self, token, answer=False)

    def _take(self, frame: Frame) -> None:
        if frame.opcode is Opcode.TEXT:
            self._text = bytearray(frame.data)
        elif frame.opcode is Opcode.CONT and self._text is not None:
            self._text += frame.data
        elif frame.opcode is Opcode.BINARY:
            commands.answer_error(self, "bad_json", "a message is text")
            return
        else:
            # websockets has answered pings and closes, a pong is a sign of life, and a binary message was refused.
            return
        if frame.fin:
            text, self._text = bytes(self._text), None
            commands.handle(self._hub, self, text)

    def _flush(self) -> None:
        """Write what the protocol wants to send: handshake, pongs, closes."""
        for data in self._protocol.data_to_send():
            if data:
                self.outbox.write(data)
            else:
                self._closing = True
                self._leave()
                self._transport.close()
                if self._abort is None:
                    self._abort = self._hub.loop.call_later(HANDSHAKE_WITHIN_S, self.cut_off)
        if not self._closing:
            self.outbox.check()

    def _leave(self) -> None:
        self.outbox.close()
        for event in list(self.subscriptions):
            self.unsubscribe(event)
        self._hub.watchers.discard(self)
        CONNECTIONS.set(len(self._hub.watchers))


def origin_is_allowed(request: Request, allowed: str) -> bool:
    """Whether the page that connects, if it is a page, was served by us or is on the list."""
    origin = request.headers.get("Origin")
    if origin is None:
        return True  # not a page: browsers always send it
    others = {other.strip().rstrip("/") for other in allowed.split(",")}
    if "*" in others or origin in others:
        return True
    try:
        return urlsplit(origin).netloc == request.headers.get("Host")
    except ValueError:
        return False  # not an address
