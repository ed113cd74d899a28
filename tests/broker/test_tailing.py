"""Tailing the log by offset: all of it, in order, whatever happens to the connection, and without a trace."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import Any

import pytest

from clientmgr.base.database import Database
from clientmgr.broker.interface import DONE, Retry
from clientmgr.broker.postgres.publish import UnknownTopicError
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.broker.tailing import tail_topic
from tests.broker.recording import TOPIC, Recorder, drain, messages, ready, until

pytestmark = pytest.mark.anyio

TERMINATE_READERS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'tailing'
"""


def tailing(database: Database, seen: list[int], stop: asyncio.Event, **options: Any) -> asyncio.Task[None]:
    """Collects the offsets. Polls so rarely that only a notification explains what comes soon."""
    options = {"from_start": True, "burst": False, "wait_period_s": 60.0} | options

    async def collect() -> None:
        reader = Database(database.url, application_name="tailing")
        async with aclosing(tail_topic(reader, TOPIC, stop, **options)) as batches:
            async for batch in batches:
                seen.extend(message.c_offset for message in batch)

    return asyncio.create_task(collect())


async def test_what_was_there_and_what_comes_is_seen_once_and_in_order(
    log_broker: PostgresBroker, database: Database
) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, messages(range(450)))
    seen: list[int] = []
    stop = asyncio.Event()
    task = tailing(database, seen, stop)
    await until(lambda: len(seen) == 450, "the first ones")
    await log_broker.publish(TOPIC, messages(range(50)))
    await until(lambda: len(seen) == 500, "the later ones")
    stop.set()
    await asyncio.wait_for(task, 10)
    assert seen == list(range(1, 501))


async def test_a_lost_connection_loses_and_repeats_nothing(
    log_broker: PostgresBroker, database: Database, query: Callable[..., list[tuple[Any, ...]]]
) -> None:
    await ready(log_broker)
    seen: list[int] = []
    stop = asyncio.Event()
    task = tailing(database, seen, stop)
    for round_number in range(1, 4):
        await log_broker.publish(TOPIC, messages(range(10)))
        await until(partial(_has, seen, round_number * 10), f"round {round_number}")
        query(TERMINATE_READERS)
    stop.set()
    await asyncio.wait_for(task, 10)
    assert seen == list(range(1, 31))


async def test_a_burst_ends_at_the_end(log_broker: PostgresBroker, database: Database) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, messages(range(3)))
    seen: list[int] = []
    await asyncio.wait_for(tailing(database, seen, asyncio.Event(), burst=True), 10)
    assert seen == [1, 2, 3]


async def test_what_a_group_is_given_again_is_not_seen_twice(log_broker: PostgresBroker, database: Database) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, messages(range(2)))
    await drain(log_broker, Recorder(lambda received: Retry(0.0) if received.attempt == 1 else DONE))
    seen: list[int] = []
    await asyncio.wait_for(tailing(database, seen, asyncio.Event(), burst=True), 10)
    assert seen == [1, 2]


async def test_a_topic_that_does_not_exist_is_no_empty_one(database: Database) -> None:
    with pytest.raises(UnknownTopicError, match=TOPIC):
        await tailing(database, [], asyncio.Event(), burst=True)


def _has(seen: list[int], count: int) -> bool:
    return len(seen) == count
