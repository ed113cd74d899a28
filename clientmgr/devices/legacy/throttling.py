"""What it takes to get on with a store that throttles: a pace that it keeps up with, and answers that are not lost.

botocore's "adaptive" mode keeps a pace too, but waits for it in the threads that ask: one that waits can't be told to
stop, neither when a batch has no more time nor when the process is to end. No I/O here, and no knowledge of the store.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

from clientmgr.base.customer_ids import CustomerId
from clientmgr.devices.contact_devices import ContactDevice

SHORTEST_INTERVAL_S, FIRST_INTERVAL_S, LONGEST_INTERVAL_S = 0.005, 0.02, 0.1
"""Below the shortest the next query goes at once. The first is well above, or a single answer would end it again."""
SLOWER, FASTER = 2.0, 0.98
"""Twice as slow when throttled; that is made up for by some thirty answers."""

Clock = Callable[[], float]


class Pace:
    """How soon after a query the next may go: at once, until the store throttles."""

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
        """Wait until a query may go, but no longer than until then; returns when that was."""
        if self.is_slow:
            # One at a time: those behind wait as long as is right when it is theirs.
            async with self._turns:
                await self._sleep(max(0.0, min(self._last_turn + self.interval_s, until) - self._clock()))
                self._last_turn = self._clock()
        return self._clock()

    def throttled(self, turn: float) -> None:
        """The query of this turn was. Those that went before we slowed down last say nothing of the pace since."""
        if turn >= self._slowed_at:
            self._slowed_at = self._clock()
            self.interval_s = min(LONGEST_INTERVAL_S, self.interval_s * SLOWER) if self.is_slow else FIRST_INTERVAL_S

    def answered(self) -> None:
        """A query was: the next may go a little sooner."""
        self.interval_s *= FASTER
        if self.interval_s < SHORTEST_INTERVAL_S:
            self.interval_s = 0.0


Answer = list[ContactDevice]


class KeptAnswers:
    """Contacts' devices as a store last told them, for whoever has to ask for the same again before they are old."""

    def __init__(self, *, seconds: float, most: int, clock: Clock = time.monotonic) -> None:
        self._seconds = seconds
        self._most = most
        self._clock = clock
        self._answers: dict[tuple[CustomerId, str, int], tuple[float, Answer]] = {}
        """With when each is old. In the order in which they were told, which is also that of their ends."""

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
