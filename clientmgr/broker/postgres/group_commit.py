"""Publishing without a transaction of the caller's: all who publish while a commit is under way share the next one."""

import asyncio
import collections
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import AsyncConnection

from clientmgr.base.errors import ErrorKind, classify
from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.publish import append_transactions, in_lock_order

MOST_MESSAGES_A_COMMIT = 10_000
# A connection that was idle for longer may have died unnoticed: ask it before trusting it with messages.
TRUSTED_FOR_S = 1.0


@dataclass(frozen=True, slots=True)
class _Publication:
    topic: str
    messages: Sequence[Message]
    committed: asyncio.Future[None]


class GroupCommit:
    """One connection, opened when it is first needed. Every call keeps its own transaction id."""

    def __init__(self, connect: Callable[[], Awaitable[AsyncConnection[Any]]]) -> None:
        self._connect = connect
        self._connection: AsyncConnection[Any] | None = None
        self._used_at = 0.0
        self._waiting: collections.deque[_Publication] = collections.deque()
        self._flushing: asyncio.Task[None] | None = None

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        """Returns when the messages are committed. An error may leave it open whether they are, if contact was lost."""
        publication = _Publication(topic, messages, asyncio.get_running_loop().create_future())
        self._waiting.append(publication)
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush(), name="broker group commit")
        await publication.committed

    async def close(self) -> None:
        """Commit what waits, then close the connection."""
        if self._flushing is not None:
            await self._flushing
        await self._disconnect()

    async def _flush(self) -> None:
        try:
            while self._waiting:
                together: list[_Publication] = []
                size = 0
                while self._waiting and (
                    not together or size + len(self._waiting[0].messages) <= MOST_MESSAGES_A_COMMIT
                ):
                    publication = self._waiting.popleft()
                    if not publication.committed.done():  # its caller may have given up
                        together.append(publication)
                        size += len(publication.messages)
                await self._commit_or_tell(together)
        finally:
            self._flushing = None

    async def _commit_or_tell(self, together: Sequence[_Publication]) -> None:
        try:
            await self._commit(together)
        except Exception as error:  # noqa: BLE001  (it is raised where it belongs: at the callers')
            if classify(error) is not ErrorKind.TRANSIENT and len(together) > 1:
                # One of them is to blame, and only that one is to hear of it.
                for publication in together:
                    await self._commit_or_tell([publication])
                return
            for publication in together:
                if not publication.committed.done():
                    publication.committed.set_exception(error)
            return
        for publication in together:
            if not publication.committed.done():
                publication.committed.set_result(None)

    async def _commit(self, together: Sequence[_Publication]) -> None:
        by_topic: dict[str, list[Sequence[Message]]] = {}
        for publication in together:
            by_topic.setdefault(publication.topic, []).append(publication.messages)
        connection = await self._usable_connection()
        try:
            # A single statement is its own transaction, and saves two round trips.
            async with connection.transaction() if len(by_topic) > 1 else contextlib.nullcontext():
                for topic in in_lock_order(by_topic):
                    await append_transactions(connection, topic, by_topic[topic])
        except psycopg.Error:
            if connection.closed:
                await self._disconnect()
            raise
        self._used_at = time.monotonic()

    async def _usable_connection(self) -> AsyncConnection[Any]:
        if self._connection is not None and time.monotonic() - self._used_at > TRUSTED_FOR_S:
            try:
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
