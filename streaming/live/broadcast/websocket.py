"""The wire protocol of one connection (RFC 6455): `websockets` without its I/O, and what it leaves to its callers.

Text is checked as it comes, frames are counted, and a close between two fragments is a close like any other.
"""

import codecs
import logging
from collections.abc import Callable

from websockets.extensions.permessage_deflate import PerMessageDeflate, ServerPerMessageDeflateFactory
from websockets.frames import CloseCode, Frame, Opcode
from websockets.server import ServerProtocol

from clientmgr.base.budget import Budget

_quiet = logging.getLogger("websockets.live")
_quiet.setLevel(logging.WARNING)  # at INFO it logs every connection

LARGEST_MESSAGE = 65_536
"""A message above LIVE_WS_MAX_FRAME_BYTES gets an error. One above this is not read: it is closed with 1009."""
LARGEST_CONTROL = 125
# Each message by itself: a window that outlives its message would take 300 KiB of memory a connection.
_DEFLATE = ServerPerMessageDeflateFactory(server_no_context_takeover=True, client_no_context_takeover=True)
_new_decoder = codecs.getincrementaldecoder("utf-8")


class WebSocket(ServerProtocol):
    """Hands on pings unanswered, so that the answer takes its place among the answers to messages."""

    def __init__(self, budget: Budget, clock: Callable[[], float]) -> None:
        # A ping may come when a message in fragments has nearly reached the limit: it is not part of the message.
        super().__init__(max_size=LARGEST_MESSAGE + LARGEST_CONTROL, logger=_quiet, extensions=[_DEFLATE])
        self._budget = budget
        self._clock = clock
        self._decoder: codecs.IncrementalDecoder | None = None  # while a text comes in fragments

    @property
    def deflate_bits(self) -> int:
        """The window of compressed messages to the client; 0: it takes none."""
        return next((one.local_max_window_bits for one in self.extensions if isinstance(one, PerMessageDeflate)), 0)

    def recv_frame(self, frame: Frame) -> None:
        """Called with each frame, before the next one is parsed. What it raises closes the connection."""
        opcode = frame.opcode
        if not self._budget.take(self._clock()):
            self.fail(CloseCode.POLICY_VIOLATION, "too many messages")
        elif opcode is Opcode.PING:
            self.events.append(frame)
        elif (
            opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
            and len(frame.data) + (self.current_size or 0) > LARGEST_MESSAGE
        ):
            self.fail(CloseCode.MESSAGE_TOO_BIG, f"a message has at most {LARGEST_MESSAGE} bytes")
        else:
            if opcode is Opcode.CLOSE:
                self.current_size = None
            else:
                self._check_text(frame)
            super().recv_frame(frame)

    def _check_text(self, frame: Frame) -> None:
        """Raises UnicodeDecodeError, which is 1007, at the first fragment that can't be part of a text."""
        if frame.opcode is Opcode.TEXT and self.current_size is None:
            if frame.fin:
                str(frame.data, "utf-8")
            else:
                self._decoder = _new_decoder()
                self._decoder.decode(frame.data)
        elif frame.opcode is Opcode.CONT and self._decoder is not None:
            self._decoder.decode(frame.data, final=frame.fin)
            if frame.fin:
                self._decoder = None
