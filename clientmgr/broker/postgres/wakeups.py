"""One LISTEN connection for the whole process, and the sleepers it wakes. A lost notification costs a polling interval.

A notification wakes one sleeper of its topic; a sleeper that finds more work wakes the next. So a single message wakes
one consumer, and a flood soon wakes all. When nobody sleeps, the notification is kept as news for the busy consumers,
who look again when they are done.
"""

import asyncio
import collections
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from psycopg import AsyncConnection

from clientmgr.base.notifications import listen

CHANNEL = "event_channel"
DUE = "due "
"""How a notification begins that is about messages set aside (sql/broker/0007_due_wakeups.sql)."""


class Wakeups:
    """Start it with `start()`, end it with `stop()`. Until it has a connection, sleepers only poll."""

    def __init__(self, connect: Callable[[], Awaitable[AsyncConnection[Any]]]) -> None:
        self._connect = connect
        self._sleepers: dict[int, collections.deque[asyncio.Future[None]]] = collections.defaultdict(collections.deque)
        self._news: collections.Counter[int] = collections.Counter()
        self._due_news: collections.Counter[int] = collections.Counter()
        self._task: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(
                listen(self._connect, CHANNEL, self._heard, listening=self._wake_everybody, lost=self._listening.clear),
                name="broker wake-ups",
            )

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    @property
    def listening(self) -> bool:
        return self._listening.is_set()

    async def wait_until_listening(self) -> None:
        await self._listening.wait()

    def news(self, topic_id: int) -> int:
        """A number that changes when busy consumers should look again. Read it before looking."""
        self._sleepers[topic_id]  # marks the topic as one that this process reads
        return self._news[topic_id]

    def due_news(self, topic_id: int) -> int:
        """A number that changes when the times of messages that are set aside have to be asked for again."""
        return self._due_news[topic_id]

    async def sleep(self, topic_id: int, seen_news: int, seconds: float) -> None:
        """Sleep until somebody wakes us, `seconds` pass, or at once when there has been news since `seen_news`."""
        if self._news[topic_id] != seen_news:
            return
        sleeper = asyncio.get_running_loop().create_future()
        self._sleepers[topic_id].append(sleeper)
        try:
            async with asyncio.timeout(seconds):
                await sleeper
        except TimeoutError:
            pass
        finally:
            with contextlib.suppress(ValueError):
                self._sleepers[topic_id].remove(sleeper)

    def wake_one(self, topic_id: int) -> None:
        """There is something to read: let a sleeper look, or whoever is ready next."""
        sleepers = self._sleepers[topic_id]
        while sleepers:
            sleeper = sleepers.popleft()
            if not sleeper.done():
                sleeper.set_result(None)
                return
        self.leave_to_the_busy(topic_id)

    def leave_to_the_busy(self, topic_id: int) -> int:
        """Others may have its partition in hand: they have to look again. Returns the news' new number."""
        self._news[topic_id] += 1
        return self._news[topic_id]

    def wake_all(self, topic_id: int) -> None:
        self.leave_to_the_busy(topic_id)
        while self._sleepers[topic_id]:
            self.wake_one(topic_id)

    def _wake_everybody(self) -> None:
        """Listening begins: nobody was notified of what was published before."""
        self._listening.set()
        for topic_id in list(self._sleepers):
            self._due_news[topic_id] += 1
            self.wake_all(topic_id)

    def _heard(self, payload: str) -> None:
        if payload.isdecimal():
            topic_id = int(payload)
            if topic_id in self._sleepers:  # otherwise nobody here reads it
                self.wake_one(topic_id)
        elif payload.startswith(DUE) and (due := payload.removeprefix(DUE)).isdecimal() and int(due) in self._sleepers:
            self._due_news[int(due)] += 1
            self.wake_all(int(due))
