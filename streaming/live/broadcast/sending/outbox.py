"""The bytes for one client: straight to the transport while it keeps up, only the latest of each device otherwise.

What is in the transport's buffer can't be taken back, so little goes in there. Positions that a slow client can't take
yet stay here, where newer ones can replace them. Nothing here waits.
"""

import asyncio
from collections.abc import Callable, Sequence

from prometheus_client import Counter

from streaming.live.broadcast.sending.frame_batch import FrameBatch

HIGH_WATER = 32 * 1024
"""The limit of the transport's buffer, or the threshold if that is less. It must be above a usual batch: otherwise fast
clients would count as slow.
"""
CHUNK = 8 * 1024
"""What a slow client gets at a time."""
TIME_TO_TAKE_S = 1.0
"""A client that kept up until now has this long to take a burst, however large: many large records may come at once."""
ON_PROBATION_S = 30.0
"""For this long after a client was slow, its frames wait here rather than in the transport."""

Key = tuple[str, str]


class Outbox:
    """The outbox of one connection.

    `too_slow` is called when more than `threshold` bytes wait. `set_apart` is called before the transport gets bytes
    other than positions: a broadcast to many connections at once would overtake them.
    """

    def __init__(
        self,
        transport: asyncio.WriteTransport,
        threshold: int,
        conflated: Counter,
        *,
        too_slow: Callable[[], None],
        set_apart: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._transport = transport
        self._threshold = threshold
        self._conflated = conflated
        self._too_slow = too_slow
        self._set_apart = set_apart
        self._clock = clock
        self._waiting: dict[Key, tuple[int, bytes]] = {}  # with the time of the fix
        self._waiting_bytes = 0
        self._straight = True  # positions go to the transport at once; stored because it is read for every frame
        self._full = False  # the transport takes no more
        self._closed = False
        self._allowance = 0
        self._moved_at = 0.0
        self._behind_since = 0.0
        self._seen_size = 0
        self._slow_until = 0.0
        self._high_water = min(HIGH_WATER, threshold)
        self.replied_bytes = 0
        """In answers so far."""
        transport.set_write_buffer_limits(high=self._high_water)

    @property
    def slow(self) -> bool:
        """Whether positions wait here, or would."""
        return self._full or bool(self._waiting)

    @property
    def full(self) -> bool:
        """Whether the transport takes no more."""
        return self._full

    @property
    def idle(self) -> bool:
        """Whether nothing waits on our side, so that bytes sent directly to the socket arrive in order."""
        return self._straight and not self._transport.get_write_buffer_size()

    @property
    def unsent_bytes(self) -> int:
        return self._waiting_bytes + self._transport.get_write_buffer_size()

    def send(self, batch: FrameBatch) -> None:
        """Send positions. They may be conflated."""
        if self._straight:
            self._transport.write(batch.joined)
        elif not self._closed:
            self._keep(batch)
            self.check()

    def send_several(self, batches: Sequence[FrameBatch]) -> None:
        if self._straight:
            self._transport.write(b"".join([batch.joined for batch in batches]))
        elif not self._closed:
            for batch in batches:
                self._keep(batch)
            self.check()

    def send_rest(self, batch: FrameBatch, taken: int) -> None:
        """Send what the socket did not take of positions that were sent directly to it."""
        if not self._closed:
            self.write(batch.joined[taken:])

    def write(self, data: bytes) -> None:
        """Send bytes as they are and in order, for the protocol."""
        self._set_apart()
        self._transport.write(data)

    def reply(self, frame: bytes, *, cost: int = 0) -> None:
        """Send an answer, whole and in order. `cost` is its size before it was compressed."""
        if self._closed:
            return
        self.replied_bytes += max(cost, len(frame))
        self.write(frame)
        self.check()

    def check(self) -> None:
        """Call `too_slow` if too much waits."""
        if (
            not self._closed
            and self.unsent_bytes > self._threshold + self._allowance
            and self._clock() - self._behind_since > TIME_TO_TAKE_S
        ):
            self._too_slow()

    def paused(self) -> None:
        """The transport is full."""
        if self._straight:
            self._straight = False
            self._behind_since = self._clock()
        if not self._full:
            self._full = True
            self._moved_at = self._clock()
            self._seen_size = self._transport.get_write_buffer_size()
            # Until now it kept up. A snapshot or a batch may be larger than the threshold: it gets the time to take it.
            self._allowance = max(self._allowance, self._seen_size - self._high_water)
        # With a limit of 0 it reports the first byte that it can't pass on, and when it has passed on the last.
        self._transport.set_write_buffer_limits(high=0)
        self._slow_until = self._clock() + ON_PROBATION_S

    def resumed(self, go_first: Callable[[], None] = lambda: None) -> None:
        """The transport is empty. Answers go first; then give it what waits, in chunks, until it is full again."""
        self._full = False
        self._moved_at = self._clock()
        go_first()
        while self._waiting and not self._full and not self._closed:
            self._transport.write(self._next_chunk())
        self._straight = not self.slow and not self._closed
        if self._straight:
            self._allowance = 0

    def stalled_for(self) -> float:
        """For how many seconds the client has taken nothing although something waits."""
        if not self._full and self._slow_until and self._clock() > self._slow_until:
            self._slow_until = 0.0
            self._transport.set_write_buffer_limits(high=self._high_water)
        size = self._transport.get_write_buffer_size()
        if not size or size < self._seen_size or not self._seen_size:
            self._moved_at = self._clock()
        self._seen_size = size
        return self._clock() - self._moved_at

    def forget(self, event: str) -> None:
        """Drop what waits for an event that is no longer watched."""
        for key in [key for key in self._waiting if key[0] == event]:
            self._waiting_bytes -= len(self._waiting.pop(key)[1])

    def close(self) -> None:
        """Drop what waits and accept nothing more."""
        self._closed = True
        self._straight = False
        self._waiting.clear()
        self._waiting_bytes = 0

    def _keep(self, batch: FrameBatch) -> None:
        """A newer fix takes the place of its predecessor in the queue, so that every device gets its turn.

        The time of the fix decides: an old fix that a device sends late does not replace its current position.
        """
        event, conflated = batch.event, 0
        for device_id, ts, frame in batch.frames:
            key = (event, device_id)
            before = self._waiting.get(key)
            if before is not None:
                conflated += 1
                if before[0] > ts:
                    continue
                self._waiting_bytes -= len(before[1])
            self._waiting[key] = (ts, frame)
            self._waiting_bytes += len(frame)
        if conflated:
            self._conflated.inc(conflated)

    def _next_chunk(self) -> bytes:
        taken: list[Key] = []
        size = 0
        for key, (_, frame) in self._waiting.items():
            taken.append(key)
            size += len(frame)
            if size >= CHUNK:
                break
        chunk = b"".join([self._waiting.pop(key)[1] for key in taken])
        self._waiting_bytes -= len(chunk)
        return chunk
