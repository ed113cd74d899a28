"""A group that is moved in its topic: by offset, by time, forward, back, and not to where nothing is kept."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import InvalidInputError
from clientmgr.broker.interface import DONE, Batch, Retry
from clientmgr.broker.postgres import seeking
from clientmgr.broker.postgres.retention import trim
from clientmgr.broker.postgres.seeking import GroupBusyError, seek_group
from clientmgr.broker.postgres.topic_administration import UnknownSubscriptionError
from clientmgr.broker.postgres.transport import PostgresBroker
from tests.broker.recording import SUBSCRIPTION, TOPIC, Recorder, drain, message, messages, number_of, ready

pytestmark = pytest.mark.anyio

Query = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
async def connection(database: Database) -> AsyncIterator[AsyncConnection[Any]]:
    async with await database.connect_async(Role.WRITER, autocommit=True) as opened:
        yield opened


async def test_a_group_moved_back_reads_again_and_moved_forward_skips(
    log_broker: PostgresBroker, connection: AsyncConnection[Any]
) -> None:
    await ready(log_broker)
    for number in range(10):
        await log_broker.publish(TOPIC, [message(number, tenant=str(number % 3))])
    await drain(log_broker)

    tried = await seek_group(connection, SUBSCRIPTION, to_offset=4, dry_run=True)
    assert (tried.again, tried.skipped) == (7, 0)
    assert (await drain(log_broker))[0].numbers == []

    report = await seek_group(connection, SUBSCRIPTION, to_offset=4)
    assert report == tried
    assert report.topic == TOPIC
    assert {seek.to_offset for seek in report.partitions} == {4}
    assert sorted((await drain(log_broker))[0].numbers) == list(range(3, 10))

    await log_broker.publish(TOPIC, messages(range(10, 14)))
    forward = await seek_group(connection, SUBSCRIPTION, to_offset=15)
    assert (forward.again, forward.skipped) == (0, 4)
    assert (await drain(log_broker))[0].numbers == []


async def test_a_time_means_the_first_message_published_then_or_later(
    log_broker: PostgresBroker, connection: AsyncConnection[Any], query: Query
) -> None:
    await ready(log_broker)
    for number in range(6):
        await log_broker.publish(TOPIC, [message(number)])
    query(
        "UPDATE clientmgr.outbox_message_t"
        " SET published_at = '2026-01-01 00:00Z'::timestamptz + c_offset * '1 h'::interval"
    )
    await drain(log_broker)
    report = await seek_group(connection, SUBSCRIPTION, to_time=datetime(2026, 1, 1, 3, 30, tzinfo=UTC))
    assert report.again == 3
    assert (await drain(log_broker))[0].numbers == [3, 4, 5]
    # Before the first message that ever was: all of it. After the last: the end.
    assert (await seek_group(connection, SUBSCRIPTION, to_time=datetime(2020, 1, 1, tzinfo=UTC))).again == 6
    assert (await seek_group(connection, SUBSCRIPTION, to_time=datetime(2040, 1, 1, tzinfo=UTC))).skipped == 6


async def test_an_offset_inside_a_transaction_means_its_first_message(
    log_broker: PostgresBroker, connection: AsyncConnection[Any]
) -> None:
    await ready(log_broker)
    for numbers in (range(2), range(2, 7), range(7, 9)):
        await log_broker.publish(TOPIC, messages(numbers))
    await drain(log_broker)
    report = await seek_group(connection, SUBSCRIPTION, to_offset=5)
    assert {seek.to_offset for seek in report.partitions} == {3}
    assert (await drain(log_broker))[0].numbers == list(range(2, 9))


async def test_what_is_trimmed_is_refused_by_name(
    log_broker: PostgresBroker, connection: AsyncConnection[Any], query: Query
) -> None:
    await ready(log_broker)
    await log_broker.ensure_subscription("slow", TOPIC)
    for number in range(6):
        await log_broker.publish(TOPIC, [message(number, tenant=str(number % 2))])
    await drain(log_broker)
    # The slow reader has passed one partition only: the other keeps everything.
    query("UPDATE clientmgr.consumer_offsets SET next_offset = 5 WHERE partition_id = clientmgr.partition_of('0', 16)")
    await trim(connection, retention_hours=0.0, topic=TOPIC)
    with pytest.raises(InvalidInputError, match="to_offset: expected 4 or later"):
        await seek_group(connection, SUBSCRIPTION, to_offset=2)
    await seek_group(connection, SUBSCRIPTION, to_offset=4)
    query("UPDATE clientmgr.consumer_offsets SET next_offset = 7")
    await trim(connection, retention_hours=0.0, topic=TOPIC)
    with pytest.raises(InvalidInputError, match="to_offset: expected 7 to 7"):
        await seek_group(connection, SUBSCRIPTION, to_offset=6)
    with pytest.raises(InvalidInputError, match="to_time: expected a time that topic orders still keeps"):
        await seek_group(connection, SUBSCRIPTION, to_time=datetime.now(UTC) - timedelta(days=1))


async def test_a_seek_names_what_is_wrong_with_it(log_broker: PostgresBroker, connection: AsyncConnection[Any]) -> None:
    await ready(log_broker)
    with pytest.raises(UnknownSubscriptionError):
        await seek_group(connection, "nobody", to_offset=1)
    with pytest.raises(InvalidInputError, match="one of the two"):
        await seek_group(connection, SUBSCRIPTION)
    with pytest.raises(InvalidInputError, match="time zone"):
        await seek_group(connection, SUBSCRIPTION, to_time=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(InvalidInputError, match="1 to 1"):
        await seek_group(connection, SUBSCRIPTION, to_offset=9)


async def test_a_batch_in_hand_is_waited_for_and_never_undone(
    log_broker: PostgresBroker, connection: AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch, query: Query
) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, messages(range(3)))
    in_hand, may_end = asyncio.Event(), asyncio.Event()
    numbers: list[int] = []

    async def handle(batch: Batch) -> None:
        numbers.extend(number_of(received) for received in batch.messages)
        in_hand.set()
        await may_end.wait()

    consuming = asyncio.create_task(log_broker.consume(SUBSCRIPTION, handle, burst=True))
    await in_hand.wait()
    monkeypatch.setattr(seeking, "WAIT_FOR_CONSUMERS_MS", 100)
    with pytest.raises(GroupBusyError, match="batch in hand"):
        await seek_group(connection, SUBSCRIPTION, to_offset=1)
    monkeypatch.setattr(seeking, "WAIT_FOR_CONSUMERS_MS", 30_000)
    moving = asyncio.create_task(seek_group(connection, SUBSCRIPTION, to_offset=1))
    await asyncio.sleep(0.05)
    may_end.set()
    assert (await moving).again == 3
    await consuming
    assert numbers + (await drain(log_broker))[0].numbers == [0, 1, 2, 0, 1, 2]
    assert query("SELECT count(*) FROM clientmgr.dead_letter_queue") == [(0,)]


async def test_retries_of_what_is_read_again_do_not_come_besides(
    log_broker: PostgresBroker, connection: AsyncConnection[Any], query: Query
) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, messages(range(4)))
    # 1 waits for its time, 2 is back in the log already.
    await drain(
        log_broker,
        Recorder(
            lambda got: (
                Retry({1: 300.0, 2: 301.0}.get(number_of(got), 0))
                if got.attempt == 1 and number_of(got) in (1, 2)
                else DONE
            )
        ),
    )
    query("UPDATE clientmgr.delayed_message_t SET not_before = now() WHERE original_offset = 3")
    query(
        "SELECT clientmgr.requeue_due(%s, %s, topic_id, 10) FROM clientmgr.consumer_offsets LIMIT 1",
        SUBSCRIPTION,
        TOPIC,
    )
    assert query("SELECT count(*) FROM clientmgr.delayed_message_t") == [(1,)]
    await seek_group(connection, SUBSCRIPTION, to_offset=1)
    assert (await drain(log_broker))[0].numbers == [0, 1, 2, 3]
    assert query("SELECT count(*) FROM clientmgr.delayed_message_t") == [(0,)]
