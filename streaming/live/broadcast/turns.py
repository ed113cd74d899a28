"""The answers to one client's messages, in order, no faster than it takes them, and no more of them than is fair.

While the transport is full, or after a large answer, we do not read on: what the client sends waits on its own side.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from streaming.live.broadcast.sending.outbox import Outbox

LARGE_ANSWER = 32 * 1024
LARGE_BYTES_PER_S = 4 * 1024 * 1024
"""A large answer is a snapshot, which costs us processor time. Asked for again and again, it comes at this rate."""
LONGEST_PAUSE_S = 5.0

Work = Callable[[], None]


class Turns:
    """Of one connection."""

    def __init__(self, transport: asyncio.Transport, outbox: Outbox, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._outbox = outbox
        self._loop = loop
        self._waiting: deque[Work] = deque()  # at most what one read brought
        self._not_before = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._reading = True

    def take(self, work: Work) -> None:
        """Do something that gives an answer, now or when its turn comes."""
        self._waiting.append(work)
        self.go_on()

    def go_on(self) -> None:
        """To be called when the transport takes bytes again."""
        while self._waiting and not self._outbox.full:
            pause_s = self._not_before - self._loop.time()
            if pause_s > 0:
                if self._timer is None:
                    self._timer = self._loop.call_later(pause_s, self._after_pause)
                break
            self._do(self._waiting.popleft())
        self._read(not self._waiting)

    def end(self) -> None:
        """Do nothing more. The other side's goodbye is still read."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._read(True)

    def _do(self, work: Work) -> None:
        before = self._outbox.replied_bytes
        work()
        answer = self._outbox.replied_bytes - before
        if answer > LARGE_ANSWER:
            self._not_before = self._loop.time() + min(LONGEST_PAUSE_S, answer / LARGE_BYTES_PER_S)

    def _after_pause(self) -> None:
        self._timer = None
        self.go_on()

    def _read(self, wanted: bool) -> None:
        if wanted is not self._reading and not self._transport.is_closing():
            self._reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()
