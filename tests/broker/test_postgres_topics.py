"""Topics and groups: names, making them at the same moment, resizing, retention, lag, and reading by offset."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import InvalidInputError, PermanentError
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import Batch, ConsumerOptions, Dead, Outcome, Retry
from clientmgr.broker.postgres import retention
from clientmgr.broker.postgres.cursor_reader import CursorReader
from clientmgr.broker.postgres.lag import LagExport, subscription_lag
from clientmgr.broker.postgres.publish import UnknownTopicError
from clientmgr.broker.postgres.reading import last_offset, read_from
from clientmgr.broker.postgres.topic_administration import TopicNotDrainedError, drop_group, resize_topic
from clientmgr.broker.postgres.transport import PostgresBroker
from tests.broker.recording import SUBSCRIPTION, TOPIC, Recorder, drain, message, messages, number_of, ready

pytestmark = pytest.mark.anyio

Query = Callable[..., list[tuple[Any, ...]]]
ROWS = "SELECT array_agg(c_offset ORDER BY c_offset) FROM clientmgr.outbox_message_t"


async def trim(database: Database, hours: float = 0.0, rows_a_transaction: int = 2) -> int:
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        return await retention.trim(connection, retention_hours=hours, rows_a_transaction=rows_a_transaction)


async def resize(database: Database, total_partitions: int) -> None:
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        await resize_topic(connection, TOPIC, total_partitions)


@pytest.mark.parametrize("name", ["ab", "1abc", "with space", "x" * 256, "semi;colon", ""])
async def test_a_topic_has_a_name_that_pubsub_would_take(log_broker: PostgresBroker, name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^topic: "):
        await log_broker.ensure_topic(name)


async def test_the_global_outbox_is_topic_1(query: Query) -> None:
    assert query("SELECT id, topic, next_offset, total_partitions FROM clientmgr.log_counter") == [(1, "outbox", 1, 16)]


async def test_many_may_make_the_same_topic_and_group_at_once(log_broker: PostgresBroker, query: Query) -> None:
    await asyncio.gather(*(log_broker.ensure_topic(TOPIC) for _ in range(8)))
    await asyncio.gather(*(log_broker.ensure_subscription(SUBSCRIPTION, TOPIC) for _ in range(8)))
    assert query("SELECT count(*) FROM clientmgr.consumer_offsets") == [(16,)]


async def test_a_subscription_reads_one_topic(log_broker: PostgresBroker) -> None:
    await ready(log_broker)
    await log_broker.ensure_topic("elsewhere")
    with pytest.raises(PermanentError, match=f"{SUBSCRIPTION} reads topic {TOPIC}, not elsewhere"):
        await log_broker.ensure_subscription(SUBSCRIPTION, "elsewhere")


async def test_a_subscription_to_a_missing_topic_is_refused_by_its_name(log_broker: PostgresBroker) -> None:
    with pytest.raises(UnknownTopicError, match="no-such-topic"):
        await log_broker.ensure_subscription(SUBSCRIPTION, "no-such-topic")


async def test_resizing_is_refused_while_a_group_has_something_to_read(
    log_broker: PostgresBroker, database: Database
) -> None:
    await ready(log_broker)
    await log_broker.ensure_subscription("slow-reader", TOPIC)
    await log_broker.publish(TOPIC, [message(1)])
    await drain(log_broker)
    with pytest.raises(TopicNotDrainedError, match="slow-reader must first read it"):
        await resize(database, 4)


async def test_resizing_is_refused_while_a_batch_is_in_hand(log_broker: PostgresBroker, database: Database) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, [message(1)])
    refusals: list[str] = []

    async def resize_meanwhile(_: Batch) -> None:
        with pytest.raises(TopicNotDrainedError) as refusal:
            await resize(database, 4)
        refusals.append(str(refusal.value))

    await log_broker.consume(SUBSCRIPTION, resize_meanwhile, burst=True)
    assert len(refusals) == 1
    assert "batch in hand" in refusals[0]


@pytest.mark.parametrize("total", [3, 64])
async def test_a_drained_topic_is_resized_without_loss_or_reordering(
    log_broker: PostgresBroker, database: Database, query: Query, total: int
) -> None:
    await ready(log_broker)
    for n in range(30):
        await log_broker.publish(TOPIC, [message(n, tenant=str(n % 10))])
    await drain(log_broker)

    await resize(database, total)

    for n in range(30, 60):
        await log_broker.publish(TOPIC, [message(n, tenant=str(n % 10))])
    recorder, _ = await drain(log_broker, options=ConsumerOptions(concurrency=3))
    assert sorted(recorder.numbers) == list(range(30, 60))
    # A group made later reads what is kept from before the change, in every tenant's order.
    await log_broker.ensure_subscription("late-reader", TOPIC)
    late, _ = await drain(log_broker, subscription="late-reader", options=ConsumerOptions(batch_size=3))
    for tenant in range(10):
        expected = list(range(tenant, 60, 10))
        assert [number_of(got) for got in late.messages if got.tenant == str(tenant)] == expected
    assert query("SELECT count(DISTINCT partition_id) FROM clientmgr.consumer_offsets") == [(total,)]


async def test_trimming_takes_what_every_group_has_passed(
    log_broker: PostgresBroker, database: Database, query: Query
) -> None:
    await ready(log_broker)
    await log_broker.ensure_subscription("slow-reader", TOPIC)
    await log_broker.publish(TOPIC, messages(range(5)))
    await drain(log_broker)
    assert await trim(database) == 0
    await drain(log_broker, subscription="slow-reader")
    await log_broker.publish(TOPIC, messages(range(5, 7)))
    assert await trim(database) == 5
    assert query(ROWS) == [([6, 7],)]
    recorder, _ = await drain(log_broker)
    assert recorder.numbers == [5, 6]


async def test_trimming_keeps_what_is_younger_than_the_retention(
    log_broker: PostgresBroker, database: Database, query: Query
) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, messages(range(5)))
    await drain(log_broker)
    query("UPDATE clientmgr.outbox_message_t SET published_at = now() - interval '3 hours' WHERE c_offset <= 3")
    assert await trim(database, hours=2.0) == 3
    assert query(ROWS) == [([4, 5],)]


async def test_a_topic_without_groups_is_kept_for_the_retention(log_broker: PostgresBroker, database: Database) -> None:
    await log_broker.ensure_topic(TOPIC)
    await log_broker.publish(TOPIC, messages(range(5)))
    assert await trim(database, hours=1.0) == 0
    assert await trim(database) == 5


async def test_retries_and_dead_letters_outlive_the_trimming(
    log_broker: PostgresBroker, database: Database, query: Query
) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, messages(range(2)))
    await drain(log_broker, Recorder(lambda got: Retry(300.0) if number_of(got) else Dead("end")))
    assert await trim(database) == 2
    query("UPDATE clientmgr.delayed_message_t SET not_before = now()")
    recorder, _ = await drain(log_broker)
    assert recorder.numbers == [1]
    assert query("SELECT payload FROM clientmgr.dead_letter_queue") == [(b'{"n": 0}',)]


async def test_a_reader_with_its_own_books_keeps_what_it_has_not_passed(
    log_broker: PostgresBroker, database: Database, settings_for: Callable[[Database], Settings]
) -> None:
    await log_broker.ensure_topic(TOPIC)
    await log_broker.ensure_subscription(TOPIC, TOPIC)
    await log_broker.publish(TOPIC, messages(range(5)))
    with CursorReader(database, settings_for(database), TOPIC) as reader:
        reader.read("2", 10)
        reader.read("1", 10)
    assert await trim(database) == 2
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        await drop_group(connection, TOPIC)
    assert await trim(database) == 3


async def test_a_group_from_the_start_begins_at_the_oldest_message_kept(
    log_broker: PostgresBroker, database: Database, query: Query
) -> None:
    await log_broker.ensure_topic(TOPIC)
    await log_broker.publish(TOPIC, messages(range(4)))
    await trim(database)
    await log_broker.publish(TOPIC, messages(range(4, 6)))
    await log_broker.ensure_subscription(SUBSCRIPTION, TOPIC)
    recorder, _ = await drain(log_broker)
    assert recorder.numbers == [4, 5]


async def test_lag_tells_how_far_a_group_is_behind(log_broker: PostgresBroker, database: Database) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, messages(range(3)))
    await drain(log_broker, Recorder(lambda got: (Retry(300.0), Dead("end"), Dead("end"))[number_of(got)]))
    await log_broker.publish(TOPIC, [message(n, tenant=str(n)) for n in range(4)])
    async with await database.connect_async(Role.READER, autocommit=True) as connection:
        [lag] = await subscription_lag(connection, topic=TOPIC)
        assert (lag.topic, lag.subscription, lag.messages, lag.waiting, lag.dead) == (TOPIC, SUBSCRIPTION, 4, 1, 2)
        assert len(lag.partitions) == 16
        assert lag.oldest_unread is not None
        assert abs(datetime.now(UTC) - lag.oldest_unread) < timedelta(minutes=1)
        await LagExport()(connection)
        labels = {"topic": TOPIC, "subscription": SUBSCRIPTION}
        assert REGISTRY.get_sample_value("clientmgr_subscription_lag_messages", labels) == 4.0
        await drain(log_broker)
        [lag] = await subscription_lag(connection, subscription=SUBSCRIPTION)
        assert (lag.messages, lag.oldest_unread, lag.seconds()) == (0, None, 0.0)


async def test_other_groups_retries_are_no_lag(log_broker: PostgresBroker, database: Database, query: Query) -> None:
    await ready(log_broker)
    await log_broker.ensure_subscription("second-reader", TOPIC)
    await log_broker.publish(TOPIC, [message(1)])
    await drain(log_broker, subscription="second-reader")
    await drain(log_broker, Recorder(lambda got: Retry(0.0) if got.attempt == 1 else Dead("end")))
    async with await database.connect_async(Role.READER, autocommit=True) as connection:
        assert [lag.messages for lag in await subscription_lag(connection, topic=TOPIC)] == [0, 0]


async def test_metrics_count_what_was_published_and_consumed(log_broker: PostgresBroker) -> None:
    topic, subscription = "metered", "metered-reader"
    await ready(log_broker, topic, subscription)
    await log_broker.publish(topic, messages(range(4)))
    outcomes: dict[int, Outcome] = {0: Retry(300.0), 1: Dead("end")}
    await drain(log_broker, Recorder(lambda got: outcomes.get(number_of(got), Dead("end"))), subscription)
    labels = {"topic": topic, "subscription": subscription}
    assert REGISTRY.get_sample_value("clientmgr_messages_published_total", {"topic": topic}) == 4.0
    assert REGISTRY.get_sample_value("clientmgr_messages_retried_total", labels) == 1.0
    assert REGISTRY.get_sample_value("clientmgr_messages_dead_total", labels) == 3.0
    assert REGISTRY.get_sample_value("clientmgr_batch_messages_sum", labels) == 4.0


async def test_metrics_count_what_a_handler_published_once_it_is_committed(log_broker: PostgresBroker) -> None:
    topic, out = "metered-in", "metered-out"
    await ready(log_broker, topic, topic)
    await log_broker.ensure_topic(out)
    # Two groups, of which one fails: the batch is handled as a whole first, and then group by group.
    await log_broker.publish(topic, [message(1)])
    await log_broker.publish(topic, [message(2)])

    async def handler(batch: Batch) -> None:
        batch.publish(out, [message(0)] * len(batch.messages))
        if any(number_of(got) == 2 for got in batch.messages):
            raise PermanentError("not this one")

    await log_broker.consume(topic, handler, burst=True)
    assert REGISTRY.get_sample_value("clientmgr_messages_published_total", {"topic": out}) == 1.0


async def test_reading_by_offset_gives_each_message_once(log_broker: PostgresBroker, database: Database) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, messages(range(3)))
    await drain(log_broker, Recorder(lambda got: Retry(0.0) if got.attempt == 1 else Dead("end")))
    await log_broker.publish(TOPIC, [message(3, colour="red")])
    with database.connect(Role.READER, autocommit=True) as connection:
        first = read_from(connection, TOPIC, 0, 2)
        rest = read_from(connection, TOPIC, first[-1].c_offset, 100)
        assert [each.data for each in first + rest] == [b'{"n": %d}' % n for n in range(4)]
        assert (rest[-1].tenant, rest[-1].key, rest[-1].attributes) == ("1", "key-3", {"colour": "red"})
        assert read_from(connection, TOPIC, rest[-1].c_offset, 100) == []
        assert last_offset(connection, TOPIC) == rest[-1].c_offset
        with pytest.raises(UnknownTopicError):
            read_from(connection, "no-such-topic", 0, 1)
