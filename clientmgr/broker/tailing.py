"""Reads the log by offset, for people who watch or look back: it makes no group, locks nothing and delays nobody."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import class_row

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import is_transient
from clientmgr.base.logs import get_logger
from clientmgr.base.sqlfiles import named_queries
from clientmgr.base.waiting import wait_for_stop
from clientmgr.broker.postgres.publish import UnknownTopicError
from clientmgr.broker.postgres.reading import QUERIES as READING_QUERIES
from clientmgr.broker.postgres.reading import LoggedMessage
from clientmgr.broker.postgres.seeking import first_at
from clientmgr.broker.postgres.wakeups import Bell, Wakeups

log = get_logger(__name__)

QUERIES = named_queries("broker/queries/overview.sql")

MESSAGES_AT_A_TIME = 200
LOOK_AT = 20_000
LARGEST_SHOWN = 64 * 1024
RECONNECT_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the log."""

    id: int
    topic: str
    partitions: int
    last_offset: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message of the log, for somebody who looks back."""

    c_offset: int
    tenant: str
    key: str
    attributes: Mapping[str, str]
    published_at: datetime
    partition: int
    data: bytes | None
    """None: it is too large to be shown."""
    size: int


async def browse(
    connection: AsyncConnection[Any],
    topic: str,
    *,
    limit: int,
    before: int | None = None,
    until: datetime | None = None,
    tenant: str | None = None,
) -> list[StoredMessage]:
    """The newest messages below an offset, or published before a time; of one tenant among the newest 20,000."""
    found = await list_topics(connection, topic)
    if not found:
        raise UnknownTopicError(topic)
    end = found[0].last_offset + 1
    if until is not None:
        end = await first_at(connection, found[0].id, until, 1, end)
    wanted = {
        "topic_id": found[0].id,
        "before": end if before is None else min(before, end),
        "limit": limit,
        "tenant": tenant,
        "look_at": LOOK_AT,
        "largest": LARGEST_SHOWN,
    }
    async with connection.cursor(row_factory=class_row(StoredMessage)) as cursor:
        await cursor.execute(QUERIES["browse"], wanted)
        return await cursor.fetchall()


async def list_topics(connection: AsyncConnection[Any], topic: str | None = None) -> list[Topic]:
    """All topics, or the one of that name."""
    async with connection.cursor(row_factory=class_row(Topic)) as cursor:
        await cursor.execute(QUERIES["topics"], {"topic": topic})
        return await cursor.fetchall()


async def tail_topic(
    database: Database,
    topic: str,
    stop: asyncio.Event,
    *,
    from_start: bool,
    burst: bool,
    wait_period_s: float,
) -> AsyncGenerator[Sequence[LoggedMessage], None]:
    """Messages of `topic` as they come, some at a time, until `stop` is set; in burst mode until the end is reached.

    If the server goes away meanwhile, it waits and goes on where it was.
    """

    async def connect() -> AsyncConnection[Any]:
        return await database.connect_async(Role.READER, autocommit=True)

    async with await connect() as connection:
        found = await list_topics(connection, topic)
    if not found:
        raise UnknownTopicError(topic)
    cursor = 0 if from_start else found[0].last_offset
    async with _woken(Wakeups(connect), found[0].id, stop) as bell:
        while not stop.is_set():
            try:
                async with await connect() as connection:
                    while not stop.is_set():
                        seen_news = bell.news
                        messages = await _read(connection, topic, cursor)
                        if messages:
                            cursor = messages[-1].c_offset
                            yield messages
                        elif burst:
                            return
                        else:
                            await bell.sleep(seen_news, wait_period_s)
            except psycopg.Error as error:
                if burst or not is_transient(error):
                    raise
                log.warning("connection lost, trying again", topic=topic, error=str(error).strip())
                await wait_for_stop(stop, RECONNECT_PAUSE_S)


@contextlib.asynccontextmanager
async def _woken(wakeups: Wakeups, topic_id: int, stop: asyncio.Event) -> AsyncIterator[Bell]:
    """Listening for news of the topic; `stop` counts as news."""
    bell = wakeups.bell(topic_id)

    async def wake_to_stop() -> None:
        await stop.wait()
        bell.wake_all()

    wakeups.start()
    waker = asyncio.create_task(wake_to_stop())
    try:
        yield bell
    finally:
        waker.cancel()
        await wakeups.stop()


async def _read(connection: AsyncConnection[Any], topic: str, after_offset: int) -> list[LoggedMessage]:
    async with connection.cursor(binary=True, row_factory=class_row(LoggedMessage)) as cursor:
        await cursor.execute(
            READING_QUERIES["read_from"],
            {"topic": topic, "after_offset": after_offset, "limit": MESSAGES_AT_A_TIME, "group_id": None},
        )
        return await cursor.fetchall()
