"""Wakes the readers of a subscription when it may have messages: on notifications, and by polling now and then.

One connection listens and one query polls for all readers of the process, so idle readers cost next to nothing.
"""

import asyncio
import contextlib
import time
from typing import Any
from weakref import WeakValueDictionary

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import tuple_row
from psycopg_pool import PoolTimeout

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import is_permanent
from clientmgr.base.logs import get_logger
from clientmgr.base.notifications import listen
from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.gateway.pool import Pool
from clientmgr.broker.gateway.signals import Signal, wait_any
from clientmgr.broker.postgres.wakeups import CHANNEL, DUE

log = get_logger(__name__)

QUERIES = named_queries("gateway/queries/maintenance.sql")
# A due message may have to wait for another of its ordering key: don't wake its readers at every look.
AGAIN_S = 0.25


class SubscriptionSignal(Signal):
    """Set when the subscription may have something to deliver. It lives as long as somebody holds it."""

    def __init__(self, subscription_id: int, topic_id: int) -> None:
        super().__init__()
        self.subscription_id = subscription_id
        self.topic_id = topic_id
        self.woken_by_look_at = 0.0


class Wakeups:
    """The signals of this process's readers."""

    def __init__(self, database: Database, pool: Pool, poll_s: float) -> None:
        self._database = database
        self._pool = pool
        self._poll_s = poll_s
        self._signals: WeakValueDictionary[int, SubscriptionSignal] = WeakValueDictionary()
        self._look_now = asyncio.Event()
        self.due_news = asyncio.Event()
        """Set when a message was published for later, of whatever topic."""

    def signal(self, subscription_id: int, topic_id: int) -> SubscriptionSignal:
        """The one that all readers of the subscription share."""
        signal = self._signals.get(subscription_id)
        if signal is None:
            signal = self._signals[subscription_id] = SubscriptionSignal(subscription_id, topic_id)
        return signal

    def topic_has_news(self, topic_id: int) -> None:
        for signal in list(self._signals.values()):
            if signal.topic_id == topic_id:
                signal.notify()

    def subscription_has_news(self, subscription_id: int) -> None:
        signal = self._signals.get(subscription_id)
        if signal is not None:
            signal.notify()

    def look_now(self) -> None:
        """A message's due time has changed, or somebody began to wait: find out when the next is due."""
        self._look_now.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Listen and look until `stop`, through any outage of the database."""
        listening = asyncio.create_task(listen(self._connect, CHANNEL, self._heard, listening=self._listening))
        try:
            await self._look(stop)
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening

    async def _look(self, stop: asyncio.Event) -> None:
        pause = self._poll_s
        while not stop.is_set():
            await wait_any(pause, stop, self._look_now)
            self._look_now.clear()
            try:
                pause = await self._wake_those_with_work()
            except (psycopg.Error, PoolTimeout) as error:
                if is_permanent(error):
                    raise
                log.warning("the database does not answer; looking again", error=str(error))
                pause = self._poll_s

    async def _wake_those_with_work(self) -> float:
        """Returns the seconds until the next look."""
        signals = dict(self._signals)
        if not signals:
            return self._poll_s
        async with self._pool.connection() as connection, connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(QUERIES["work"], {"ids": list(signals)})
            rows = await cursor.fetchall()
        pause = self._poll_s
        now = time.monotonic()
        for subscription_id, gone, has_new, due_in_s in rows:
            signal = signals[subscription_id]
            if gone or has_new or (due_in_s is not None and due_in_s <= 0):
                rest_s = signal.woken_by_look_at + AGAIN_S - now
                if rest_s > 0:
                    pause = min(pause, rest_s)
                    continue
                signal.woken_by_look_at = now
                signal.notify()
            elif due_in_s is not None:
                pause = min(pause, due_in_s)
        return pause

    async def _connect(self) -> AsyncConnection[Any]:
        return await self._database.connect_async(Role.WRITER, autocommit=True)

    def _listening(self) -> None:
        """Nobody was told of what came before."""
        self.look_now()
        self.due_news.set()

    def _heard(self, payload: str) -> None:
        if payload.isdecimal():
            self.topic_has_news(int(payload))
        elif payload.startswith(DUE):
            self.due_news.set()
