"""One connection: handshake, incoming messages, limits, and its end. `websocket.py` parses; we do every write."""

import asyncio
import socket
import struct
from typing import cast
from urllib.parse import parse_qs

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN

from clientmgr.base.budget import Budget
from clientmgr.base.forwarded import client_address, counted_as, is_trusted
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.live.tokens import EVERYTHING, Grant
from streaming.live.broadcast import commands, http
from streaming.live.broadcast.admission import host_is_own, origin_is_allowed
from streaming.live.broadcast.broadcast_metrics import CONFLATED, CONNECTIONS, DROPPED, REFUSED
from streaming.live.broadcast.frames import PING
from streaming.live.broadcast.hub import Hub
from streaming.live.broadcast.request_head import LARGEST_HEAD, RequestHead
from streaming.live.broadcast.sending.outbox import Outbox
from streaming.live.broadcast.subscriptions import Topic
from streaming.live.broadcast.turns import Turns, Work
from streaming.live.broadcast.websocket import WebSocket

log = get_logger(__name__)

WEBSOCKET_PATH = "/ws"
HANG_UP_WITHIN_S = 10.0
ABORT_AFTER_S = 1.0
SPARE_CONNECTIONS = 128
"""Beyond all places, for clients that are about to be hung up on. Any further connection is cut off at once: otherwise
they could use up all open files.
"""


def most_connections(settings: Settings) -> int:
    """How many connections may be open at once, those that are ending included."""
    return settings.live_ws_max_connections + settings.live_ws_max_unauthenticated + SPARE_CONNECTIONS


class Connection(asyncio.Protocol):
    """The server makes one for each accepted connection."""

    outbox: Outbox
    _transport: asyncio.Transport
    _turns: Turns

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        settings, now = hub.settings, hub.loop.time()
        budget = Budget(settings.live_ws_max_messages_per_s, settings.live_ws_message_burst, now)
        self._protocol = WebSocket(budget, hub.loop.time)
        self._peer = ""
        self._head = RequestHead()
        self._text: bytearray | None = None  # the fragments of a message so far; the protocol limits their size
        self._closing = False
        self._abort: asyncio.TimerHandle | None = None
        self._opened_at = self._heard_at = self._pinged_at = now
        self.deflate_bits = 0
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
        self._turns = Turns(self._transport, self.outbox, hub.loop)
        hub.transports.add(self)
        hub.everybody_left.clear()
        if len(hub.transports) > most_connections(hub.settings):
            REFUSED.labels(CloseCode.ABNORMAL_CLOSURE).inc()
            self._closing = True
            self.cut_off()
            return
        self._peer = (transport.get_extra_info("peername") or ("",))[0]
        # A proxy says only with the request whose connection it is.
        hub.places.arrive(self, "" if is_trusted(self._peer, hub.trusted_proxies) else counted_as(self._peer))

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._leave()
        self._hub.places.leave(self)  # not before: whoever hangs up slowly still has its place
        self._hub.transports.discard(self)
        if not self._hub.transports:
            self._hub.everybody_left.set()
        if self._abort is not None:
            self._abort.cancel()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._hub.loop.time()
        if not self._head.complete:
            data = self._take_head(data)
        if data:
            self._protocol.receive_data(data)
            self._take_events()
        self._flush()

    def eof_received(self) -> None:
        self._protocol.receive_eof()
        self._flush()

    def pause_writing(self) -> None:
        self.outbox.paused()

    def resume_writing(self) -> None:
        self.outbox.resumed(self._turns.go_on)

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

    def in_turn(self, work: Work) -> None:
        """Do something that gives an answer, when all earlier answers are on their way."""
        self._turns.take(work)

    def admit(self, grant: Grant) -> bool:
        """Let it see what the grant allows. False: there was no place for it, and it is closed."""
        if full := self._hub.places.admit(self):
            self.refuse(CloseCode.TRY_AGAIN_LATER, full)
            return False
        self.grant = grant
        return True

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

    def give_up_place(self) -> None:
        """End it at once: somebody else needs its place. Only those who have shown no token are asked to."""
        if self in self._hub.watchers:
            self.refuse(CloseCode.TRY_AGAIN_LATER, "too many connections without a token")
            self._transport.close()
            return
        if not self._closing:
            REFUSED.labels(CloseCode.ABNORMAL_CLOSURE).inc()
        self._closing = True
        self.cut_off()

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
        if self.grant is None:
            if (now - self._opened_at) * 1000 <= settings.live_ws_token_within_ms:
                return
            if self in self._hub.watchers:
                self.refuse(commands.UNAUTHENTICATED, "no token came")
            else:
                self.cut_off()
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

    def _take_head(self, data: bytes) -> bytes:
        """Read up to the end of the request's head, and answer it. Returns what came after it."""
        if self._closing:
            return b""  # it was refused, and talks on
        head, rest = self._head.split(data)
        if self._head.too_large:
            self._protocol.send_response(http.refusal(431, f"a request's head has at most {LARGEST_HEAD} bytes"))
            return b""
        self._protocol.receive_data(head)
        self._take_events()
        return rest

    def _take_events(self) -> None:
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._begin(event)
            elif not self._closing:
                self._take(cast(Frame, event))

    def _begin(self, request: Request) -> None:
        hub = self._hub
        path, _, query = request.path.partition("?")
        if is_trusted(self._peer, hub.trusted_proxies):
            forwarded = ",".join(request.headers.get_all("X-Forwarded-For"))
            hub.places.identify(self, counted_as(client_address(self._peer, forwarded, hub.trusted_proxies)))
        if not host_is_own(request, hub.own_hosts):
            self._protocol.send_response(http.refusal(421, "this is not the address of the live broadcast"))
            return
        if path != WEBSOCKET_PATH:
            self._protocol.send_response(http.answer(hub, request, path))
            return
        response = self._protocol.accept(request)
        self._protocol.send_response(response)
        if response.status_code != 101:
            return
        self._flush()
        self.deflate_bits = self._protocol.deflate_bits
        hub.watchers.add(self)
        CONNECTIONS.set(len(hub.watchers))
        token = parse_qs(query).get("token", [""])[-1]
        if not origin_is_allowed(request, hub.settings.live_allowed_origins):
            self.refuse(commands.FORBIDDEN, "this page's origin is not allowed")
        elif hub.settings.live_auth == "off":
            self.admit(EVERYTHING)
        elif token:
            commands.authenticate(hub, self, token, answer=False)

    def _take(self, frame: Frame) -> None:
        if frame.opcode is Opcode.PING:
            self.outbox.write(Frame(Opcode.PONG, frame.data).serialize(mask=False))
        elif frame.opcode is Opcode.TEXT:
            self._text = bytearray(frame.data)
        elif frame.opcode is Opcode.CONT and self._text is not None:
            self._text += frame.data
        elif frame.opcode is Opcode.BINARY:
            commands.answer_error(self, "bad_json", "a message is text")
        else:
            # The protocol has answered a close, a pong is a sign of life, and a binary message was refused.
            return
        if frame.fin and self._text is not None and frame.opcode in (Opcode.TEXT, Opcode.CONT):
            text, self._text = bytes(self._text), None
            self.in_turn(lambda: commands.handle(self._hub, self, text))

    def _flush(self) -> None:
        """Write what the protocol wants to send: handshake, closes."""
        for data in self._protocol.data_to_send():
            if data:
                self.outbox.write(data)
            else:
                self._hang_up()
        if not self._closing:
            self.outbox.check()

    def _hang_up(self) -> None:
        """Everything is said, a close frame too if it was a WebSocket."""
        said = self._protocol.close_sent
        if said is not None and said.code == CloseCode.POLICY_VIOLATION and not self._closing:
            REFUSED.labels(CloseCode.POLICY_VIOLATION).inc()
        self._closing = True
        self._leave()
        if said is None:
            self._transport.close()
        else:
            # Closed while something comes in, the system would answer that, and the client might never see why.
            self._transport.write_eof()
        if self._abort is None:
            wait_s = HANG_UP_WITHIN_S if said is None else ABORT_AFTER_S
            self._abort = self._hub.loop.call_later(wait_s, self.cut_off)

    def _leave(self) -> None:
        self._turns.end()
        self.outbox.close()
        for event in list(self.subscriptions):
            self.unsubscribe(event)
        self._hub.watchers.discard(self)
        CONNECTIONS.set(len(self._hub.watchers))
