"""One LISTEN connection for the whole process, and the sleepers it wakes. A lost notification costs a polling interval.

A notification wakes one sleeper of each subscription of its topic; a sleeper that finds more work wakes the next. So a
single message wakes one consumer, and a flood soon wakes all. When nobody sleeps, the notification is kept as news for
the busy consumers, who look again when they are done.
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


class Bell:
    """What wakes those in this process who read one topic for the same subscription."""

    def __init__(self) -> None:
        self._sleepers: collections.deque[asyncio.Future[None]] = collections.deque()
        self.news = 0
        """Changes when busy consumers should look again. Read it before looking."""
        self.due_news = 0
        """Changes when the times of messages that are set aside have to be asked for again."""

    async def sleep(self, seen_news: int, seconds: float) -> None:
        """Sleep until somebody wakes us, `seconds` pass, or at once when there has been news since `seen_news`."""
        if self.news != seen_news:
            return
        sleeper = asyncio.get_running_loop().create_future()
        self._sleepers.append(sleeper)
        try:
            async with asyncio.timeout(seconds):
                await sleeper
        except TimeoutError:
            pass
        finally:
            with contextlib.suppress(ValueError):
                self._sleepers.remove(sleeper)

    def wake_one(self) -> None:
        """There is something to read: let a sleeper look, or whoever is ready next."""
        while self._sleepers:
            sleeper = self._sleepers.popleft()
            if not sleeper.done():
                sleeper.set_result(None)
                return
        self.leave_to_the_busy()

    def leave_to_the_busy(self) -> int:
        """Others may have its partition in hand: they have to look again. Returns the news' new number."""
        self.news += 1
        return self.news

    def wake_all(self) -> None:
        self.leave_to_the_busy()
        while self._sleepers:
            self.wake_one()


class Wakeups:
    """Start it with `start()`, end it with `stop()`. Until it has a connection, sleepers only poll."""

    def __init__(self, connect: Callable[[], Awaitable[AsyncConnection[Any]]]) -> None:
        self._connect = connect
        self._bells: dict[int, dict[str, Bell]] = {}
        """By topic and subscription."""
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

    def bell(self, topic_id: int, subscription: str = "") -> Bell:
        """The one of all who read the topic for this subscription; without a name, for whoever only looks at it."""
        return self._bells.setdefault(topic_id, {}).setdefault(subscription, Bell())

    def _wake_everybody(self) -> None:
        """Listening begins: nobody was notified of what was published before."""
        self._listening.set()
        for bells in self._bells.values():
            for bell in bells.values():
                bell.due_news += 1
                bell.wake_all()

    def _heard(self, payload: str) -> None:
        is_due = payload.startswith(DUE)
        topic = payload.removeprefix(DUE)
        if not topic.isdecimal():
            return
        for bell in self._bells.get(int(topic), {}).values():
            if is_due:
                bell.due_news += 1
                bell.wake_all()
            else:
                bell.wake_one()
