"""Publishing outside a caller's transaction: everyone who publishes during one commit shares the next one."""

import contextlib
import select
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import psycopg
from psycopg import AsyncConnection

from clientmgr.base.errors import is_transient
from clientmgr.broker.batcher import Batcher
from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.grouping import is_special
from clientmgr.broker.postgres.publish import append_each, in_lock_order

MOST_MESSAGES_A_COMMIT = 10_000
# A connection that was idle for longer may have died without a word: test it before trusting it with messages.
TRUSTED_FOR_S = 1.0

_Publication: TypeAlias = tuple[str, Sequence[Message]]


class GroupCommit:
    """One connection, opened when it is first needed. Every call keeps its own transaction id."""

    def __init__(self, connect: Callable[[], Awaitable[AsyncConnection[Any]]]) -> None:
        self._connect = connect
        self._connection: AsyncConnection[Any] | None = None
        self._used_at = 0.0
        # One queue for all topics: there is one connection.
        self._commits: Batcher[None, _Publication, None] = Batcher(
            self._commit,
            lambda publication: len(publication[1]),
            MOST_MESSAGES_A_COMMIT,
            one_is_to_blame=lambda error: not is_transient(error),
            skip_abandoned=True,
        )

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        """Returns when the messages are committed. After an error of the connection they may be or may not."""
        await self._commits.submit(None, (topic, messages))

    async def close(self) -> None:
        """Commit what waits, then close the connection."""
        await self._commits.finish()
        await self._disconnect()

    async def _commit(self, _key: None, publications: Sequence[_Publication]) -> Sequence[None]:
        by_topic: dict[str, list[Sequence[Message]]] = {}
        for topic, messages in publications:
            by_topic.setdefault(topic, []).append(messages)
        connection = await self._usable_connection()
        try:
            # A single statement is its own transaction, and saves two round trips.
            alone = len(by_topic) == 1 and not any(map(is_special, by_topic[publications[0][0]]))
            async with contextlib.nullcontext() if alone else connection.transaction():
                for topic in in_lock_order(by_topic):
                    await append_each(connection, topic, by_topic[topic])
        except psycopg.Error:
            if connection.closed:
                await self._disconnect()
            raise
        self._used_at = time.monotonic()
        return [None] * len(publications)

    async def _usable_connection(self) -> AsyncConnection[Any]:
        if self._connection is not None:
            try:
                if time.monotonic() - self._used_at > TRUSTED_FOR_S or _was_sent_something(self._connection):
                    await self._connection.execute("")
            except psycopg.Error:
                await self._disconnect()
        if self._connection is None:
            self._connection = await self._connect()
        return self._connection

    async def _disconnect(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None


def _was_sent_something(connection: AsyncConnection[Any]) -> bool:
    """By a server that was asked nothing: most likely, it has ended the session. This takes no round trip."""
    looking = select.poll()
    looking.register(connection.fileno(), select.POLLIN)
    return bool(looking.poll(0))
