"""What the gateway does without being called: it appends messages that were published for later, forwards dead letters
of subscriptions that nobody reads, expires messages, and tells the log's retention how far subscriptions have come.
"""

import asyncio
from collections.abc import Awaitable, Callable

import psycopg
from psycopg.rows import tuple_row
from psycopg_pool import PoolTimeout

from clientmgr.base.errors import is_permanent, is_transient
from clientmgr.base.logs import get_logger
from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.gateway.dead_letters import DeadLetters
from clientmgr.broker.gateway.pool import Pool
from clientmgr.broker.gateway.refusals import Refusal, not_found_when_gone
from clientmgr.broker.gateway.signals import wait_any
from clientmgr.broker.gateway.subscriptions import Subscriptions
from clientmgr.broker.postgres.due_messages import append_due_messages

log = get_logger(__name__)

QUERIES = named_queries("gateway/queries/maintenance.sql")
SNAPSHOT_QUERIES = named_queries("gateway/queries/snapshots.sql")
DUE_MESSAGES_EVERY_S = 60.0
"""At the latest: sooner when one is due sooner, when one is published for later, and after a lost connection."""
SHORTEST_PAUSE_S = 0.05
DEAD_LETTERS_EVERY_S = 5.0
RETENTION_EVERY_S = 15.0
UNUSED_EVERY_S = 60.0
"""Both, as long as there is no subscription."""
AGAIN_S = 5.0
"""After an error."""


class Maintenance:
    """Safe in any number of gateways at once: each step locks the subscription that it works on."""

    def __init__(
        self, pool: Pool, subscriptions: Subscriptions, dead_letters: DeadLetters, due_news: asyncio.Event
    ) -> None:
        """`due_news` is set when a message was published for later."""
        self._pool = pool
        self._due_news = due_news
        self._subscriptions = subscriptions
        self._dead_letters = dead_letters

    async def run(self, stop: asyncio.Event) -> None:
        clock = asyncio.get_running_loop().time
        dead_letters_at = clock() + DEAD_LETTERS_EVERY_S
        retention_at = clock() + RETENTION_EVERY_S
        pause_s = SHORTEST_PAUSE_S
        while not stop.is_set():
            await wait_any(pause_s, stop, self._due_news)
            self._due_news.clear()
            pause_s = AGAIN_S
            try:
                async with self._pool.connection() as connection:
                    next_due_s = await append_due_messages(connection)
                if clock() >= dead_letters_at:
                    dead_letters_at = clock() + DEAD_LETTERS_EVERY_S
                    await self.forward_dead_letters()
                if clock() >= retention_at:
                    retention_at = clock() + RETENTION_EVERY_S
                    if not await self.apply_retention():
                        dead_letters_at = retention_at = clock() + UNUSED_EVERY_S
                due_s = DUE_MESSAGES_EVERY_S if next_due_s is None else next_due_s
                pause_s = max(
                    min(due_s, DUE_MESSAGES_EVERY_S, min(dead_letters_at, retention_at) - clock()), SHORTEST_PAUSE_S
                )
            except (psycopg.Error, PoolTimeout) as error:
                if is_permanent(error):
                    raise
                log.warning("the database does not answer; maintenance will try again", error=str(error))

    async def forward_dead_letters(self) -> None:
        await self._for_each("with_dead_letters", self._forward_dead_letters)

    async def apply_retention(self) -> bool:
        """Drop what subscriptions no longer keep, and record for the log's retention how far each has come.

        False: there is no subscription.
        """
        found = await self._for_each("subscription_names", self._apply_retention)
        async with self._pool.connection() as connection:
            await connection.execute(QUERIES["forget_acknowledged"])
            await connection.execute(QUERIES["forget_freed_keys"])
            await connection.execute(QUERIES["advance_retention_groups"])
            await connection.execute(SNAPSHOT_QUERIES["forget_expired"])
        return found > 0

    async def _forward_dead_letters(self, name: str) -> None:
        await self._dead_letters.forward(await self._subscriptions.find(name))

    async def _apply_retention(self, name: str) -> None:
        async with self._pool.connection() as connection:
            with not_found_when_gone(name):
                await connection.execute(QUERIES["apply_retention"], {"name": name})

    async def _for_each(self, query: str, work: Callable[[str], Awaitable[None]]) -> int:
        """Do the work for each subscription that the query names. A failure does not stop the others."""
        names = await self._names(query)
        for name in names:
            try:
                await work(name)
            except Refusal:
                continue  # deleted meanwhile
            except psycopg.DatabaseError as error:
                if is_transient(error):
                    raise
                log.warning("maintenance failed for a subscription", subscription=name, error=str(error))
        return len(names)

    async def _names(self, query: str) -> list[str]:
        async with self._pool.connection() as connection, connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(QUERIES[query])
            return [row[0] for row in await cursor.fetchall()]
