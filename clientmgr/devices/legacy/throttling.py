"""How to work with a store that throttles: a pace that it can keep up with, and a memory for its answers.

botocore's "adaptive" mode keeps a pace too, but it waits inside the threads that ask. Such a thread can't be stopped,
neither when a batch runs out of time nor when the process ends. There is no I/O here and no knowledge of the store.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

from clientmgr.base.customer_ids import CustomerId
from clientmgr.devices.contact_devices import ContactDevice

SHORTEST_INTERVAL_S, FIRST_INTERVAL_S, LONGEST_INTERVAL_S = 0.005, 0.02, 0.1
"""Below the shortest interval there is no pause. Start well above it: otherwise one answer would end the slow pace."""
SLOWER, FASTER = 2.0, 0.98
"""The interval doubles when throttled. Some thirty answers bring it back."""

Clock = Callable[[], float]


class Pace:
    """The pause between two queries. There is none until the store throttles."""

    def __init__(
        self, clock: Clock = time.monotonic, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        self.interval_s = 0.0
        self._clock = clock
        self._sleep = sleep
        self._turns = asyncio.Lock()
        self._last_turn = self._slowed_at = -math.inf

    @property
    def is_slow(self) -> bool:
        return self.interval_s > 0.0

    async def turn(self, until: float) -> float:
        """Wait until the next query may start, but not beyond `until`. Returns the time of its start."""
        if self.is_slow:
            # One at a time: each waits by the interval that holds when its turn comes.
            async with self._turns:
                await self._sleep(max(0.0, min(self._last_turn + self.interval_s, until) - self._clock()))
                self._last_turn = self._clock()
        return self._clock()

    def throttled(self, turn: float) -> None:
        """The query of this turn was throttled. Queries from before the last slow-down do not count against it."""
        if turn >= self._slowed_at:
            self._slowed_at = self._clock()
            self.interval_s = min(LONGEST_INTERVAL_S, self.interval_s * SLOWER) if self.is_slow else FIRST_INTERVAL_S

    def answered(self) -> None:
        """A query was answered: the next may start a little sooner."""
        self.interval_s *= FASTER
        if self.interval_s < SHORTEST_INTERVAL_S:
            self.interval_s = 0.0


Answer = list[ContactDevice]


class KeptAnswers:
    """Keeps the answers of a store for a while, for messages that need the same contacts at their next attempt."""

    def __init__(self, *, seconds: float, most: int, clock: Clock = time.monotonic) -> None:
        self._seconds = seconds
        self._most = most
        self._clock = clock
        self._answers: dict[tuple[CustomerId, str, int], tuple[float, Answer]] = {}
        """Each with the time when it expires. The order of insertion is also the order of expiry."""

    def keep(self, customer_id: CustomerId, application_code: str, answers: Mapping[int, Answer]) -> None:
        old_at = self._clock() + self._seconds
        for contact_id, answer in answers.items():
            key = (customer_id, application_code, contact_id)
            self._answers.pop(key, None)
            self._answers[key] = (old_at, answer)
        self._forget()

    def find(self, customer_id: CustomerId, application_code: str, contact_ids: Iterable[int]) -> dict[int, Answer]:
        self._forget()
        if not self._answers:
            return {}
        found = {one: self._answers.get((customer_id, application_code, one)) for one in contact_ids}
        return {contact_id: kept[1] for contact_id, kept in found.items() if kept is not None}

    def _forget(self) -> None:
        now = self._clock()
        while self._answers:
            oldest = next(iter(self._answers))
            if len(self._answers) <= self._most and self._answers[oldest][0] > now:
                return
            del self._answers[oldest]
