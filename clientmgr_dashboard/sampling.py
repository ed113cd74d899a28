"""How fast the topics grow: their newest offsets, looked at every few seconds while the dashboard runs."""

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

LOOK_EVERY_S = 2.0
KEPT = 150
"""Looks: five minutes."""
RATE_OVER_S = 20.0


@dataclass(frozen=True, slots=True)
class Look:
    at: float
    """By the monotonic clock."""
    offsets: Mapping[str, int]


class LogSampler:
    """Keeps the looks of the last minutes."""

    def __init__(self, pool: AsyncConnectionPool) -> None:
        self._pool = pool
        self._looks: deque[Look] = deque(maxlen=KEPT)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self._run())
            yield
            task.cancel()

    async def look(self) -> None:
        async with self._pool.connection(LOOK_EVERY_S) as connection:
            topics = await list_topics(connection)
        self._looks.append(Look(time.monotonic(), {topic.topic: topic.last_offset for topic in topics}))

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except (psycopg.Error, PoolTimeout, OSError) as error:
                log.warning("the log could not be looked at, next time perhaps", error=str(error).strip())
            await asyncio.sleep(LOOK_EVERY_S)

    def rate(self, topic: str) -> float | None:
        """Messages a second, of late; None: not known yet."""
        if len(self._looks) < 2:
            return None
        newest = self._looks[-1]
        oldest = next(look for look in self._looks if look.at >= newest.at - RATE_OVER_S or look is newest)
        if oldest is newest:
            oldest = self._looks[-2]
        # A topic that was not there before has grown from nothing.
        grown = newest.offsets.get(topic, 0) - oldest.offsets.get(topic, 0)
        return max(grown, 0) / (newest.at - oldest.at)

    def rates(self, topic: str) -> list[float]:
        """Messages a second between each two looks, the oldest first."""
        return [
            max(later.offsets.get(topic, 0) - earlier.offsets.get(topic, 0), 0) / (later.at - earlier.at)
            for earlier, later in itertools.pairwise(self._looks)
        ]
