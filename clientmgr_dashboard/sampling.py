"""How fast topics grow: their newest offsets, read every few seconds while somebody looks, and seldom otherwise."""

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from clientmgr.base.logs import get_logger
from clientmgr.broker.tailing import list_topics

log = get_logger(__name__)

SAMPLE_EVERY_S = 2.0
UNWATCHED_EVERY_S = 60.0
WATCHED_FOR_S = 30.0
"""After somebody asked for a rate: pages ask again every few seconds."""
KEPT = 150
"""Samples: five minutes."""
RATE_OVER_S = 20.0


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    """By the monotonic clock."""
    offsets: Mapping[str, int]


class LogSampler:
    """Keeps the samples of the last minutes."""

    def __init__(self, pool: AsyncConnectionPool) -> None:
        self._pool = pool
        self._samples: deque[Sample] = deque(maxlen=KEPT)
        self._asked_at = float("-inf")
        self._asked = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self._run())
            yield
            task.cancel()

    async def sample(self) -> None:
        async with self._pool.connection(SAMPLE_EVERY_S) as connection:
            topics = await list_topics(connection)
        self._samples.append(Sample(time.monotonic(), {topic.topic: topic.last_offset for topic in topics}))

    async def _run(self) -> None:
        while True:
            try:
                await self.sample()
            except (psycopg.Error, PoolTimeout, OSError) as error:
                log.warning("the log could not be read, will try again", error=str(error).strip())
            await asyncio.sleep(SAMPLE_EVERY_S)
            if time.monotonic() - self._asked_at > WATCHED_FOR_S:
                self._asked.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._asked.wait(), UNWATCHED_EVERY_S - SAMPLE_EVERY_S)

    def _is_watched(self) -> None:
        self._asked_at = time.monotonic()
        self._asked.set()

    def rate(self, topic: str) -> float | None:
        """Messages a second, recently; None: not known yet."""
        self._is_watched()
        if len(self._samples) < 2:
            return None
        newest = self._samples[-1]
        oldest = next(one for one in self._samples if one.at >= newest.at - RATE_OVER_S or one is newest)
        if oldest is newest:
            oldest = self._samples[-2]
        # A topic that was not there before has grown from zero.
        grown = newest.offsets.get(topic, 0) - oldest.offsets.get(topic, 0)
        return max(grown, 0) / (newest.at - oldest.at)

    def rates(self, topic: str) -> list[float]:
        """Messages a second between consecutive samples, the oldest first."""
        self._is_watched()
        return [
            max(later.offsets.get(topic, 0) - earlier.offsets.get(topic, 0), 0) / (later.at - earlier.at)
            for earlier, later in itertools.pairwise(self._samples)
        ]
