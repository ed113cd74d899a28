"""Errors that nobody foresaw: the group that fails waits with its tenant's later messages, and nobody else does."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import PermanentError
from clientmgr.broker.interface import DONE, Batch, ConsumerOptions, Dead, Message, Outcome, Retry
from clientmgr.broker.postgres.lag import subscription_lag
from clientmgr.broker.postgres.publish import append_transactions
from clientmgr.broker.postgres.retention import trim
from clientmgr.broker.postgres.seeking import seek_group
from clientmgr.broker.postgres.topic_administration import drop_group, resize_topic
from clientmgr.broker.postgres.transport import PostgresBroker
from tests.broker.recording import SUBSCRIPTION, TOPIC, drain, message, messages, number_of, ready, until

pytestmark = pytest.mark.anyio

Query = Callable[..., list[tuple[Any, ...]]]


async def publish_groups(database: Database, *groups: list[Message]) -> None:
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        await append_transactions(connection, TOPIC, groups)


@pytest.fixture
async def one_partition(log_broker: PostgresBroker, database: Database) -> PostgresBroker:
    """A topic on which all tenants are neighbours."""
    await ready(log_broker)
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        await resize_topic(connection, TOPIC, 1)
    return log_broker


class Faulty:
    """Raises KeyError for batches with a message of `broken`, and remembers what it did otherwise, in order."""

    def __init__(self, *broken: int) -> None:
        self.broken = set(broken)
        self.done: list[tuple[str, int]] = []
        self.calls: Counter[int] = Counter()

    async def __call__(self, batch: Batch) -> Sequence[Outcome] | None:
        numbers = [number_of(received) for received in batch.messages]
        self.calls.update(numbers)
        if self.broken.intersection(numbers):
            raise KeyError("nobody foresaw this")
        self.done += [(received.tenant, number_of(received)) for received in batch.messages]
        return None

    def of(self, tenant: str) -> list[int]:
        return [number for owner, number in self.done if owner == tenant]


def make_due(query: Query) -> None:
    query("UPDATE clientmgr.held_queues SET not_before = now()")


def rest(query: Query) -> None:
    query("UPDATE clientmgr.held_queues SET not_before = now() + interval '1 hour'")


async def test_a_neighbour_is_handled_at_once_and_the_failing_tenant_in_its_order_later(
    one_partition: PostgresBroker, database: Database, query: Query
) -> None:
    await publish_groups(
        database,
        [message(1, tenant="good")],
        messages(range(10, 13), tenant="bad"),
        [message(2, tenant="good")],
        [message(13, tenant="bad")],
    )
    handler, stop = Faulty(11), asyncio.Event()
    consuming = asyncio.create_task(one_partition.consume(SUBSCRIPTION, handler, stop=stop))
    await until(lambda: handler.of("good") == [1, 2], "the neighbour")
    await publish_groups(database, [message(14, tenant="bad")], [message(3, tenant="good")])
    await until(lambda: handler.of("good") == [1, 2, 3], "the neighbour again")
    assert handler.of("bad") == []
    handler.broken.clear()
    await until(lambda: handler.of("bad") == [10, 11, 12, 13, 14], "the tenant in its order")
    await publish_groups(database, [message(15, tenant="bad")])
    await until(lambda: handler.of("bad")[-1] == 15, "what comes when nothing is held")
    stop.set()
    stats = await consuming
    assert stats.done == 9
    assert (stats.dead, stats.retried % 3) == (0, 0)
    assert handler.calls[13] == 2  # with all others at first, then when its turn came
    assert query("SELECT FROM clientmgr.held_queues") == query("SELECT FROM clientmgr.held_message_t") == []


async def test_a_group_dies_after_its_own_attempts_and_the_next_one_has_all_of_its_own(
    one_partition: PostgresBroker, database: Database, query: Query
) -> None:
    await publish_groups(database, *([message(n)] for n in range(5)))
    handler = Faulty(1, 3)
    options = ConsumerOptions(max_attempts=3)
    stats = await one_partition.consume(SUBSCRIPTION, handler, options=options, burst=True)
    assert (stats.done, stats.dead) == (3, 2)
    assert handler.of("1") == [0, 2, 4]
    assert query("SELECT user_id, attempts, error_class FROM clientmgr.dead_letter_queue ORDER BY c_offset") == [
        ("key-1", 3, "KeyError"),
        ("key-3", 3, "KeyError"),
    ]
    assert query("SELECT FROM clientmgr.held_queues") == []


async def test_messages_without_a_tenant_do_not_wait_for_each_other(
    one_partition: PostgresBroker, database: Database, query: Query
) -> None:
    await publish_groups(database, *([message(n, tenant="")] for n in range(4)))
    handler = Faulty(1)
    consuming = one_partition.consume(SUBSCRIPTION, handler, options=ConsumerOptions(max_attempts=2), burst=True)
    assert (await consuming).dead == 1
    assert handler.of("") == [0, 2, 3]


async def test_a_held_message_can_be_put_off_or_declared_dead_after_the_log_forgot_it(
    one_partition: PostgresBroker, database: Database, query: Query
) -> None:
    await publish_groups(database, *([message(n, colour="red")] for n in range(3)))
    handler = Faulty(0)
    await one_partition.consume(SUBSCRIPTION, handler, burst=True, options=ConsumerOptions(wait_period_ms=1))
    rest(query)
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        await trim(connection, retention_hours=0.0, topic=TOPIC)
        [lag] = await subscription_lag(connection, topic=TOPIC)
    assert (lag.messages, lag.waiting) == (0, 3)
    assert query("SELECT FROM clientmgr.outbox_message_t") == []
    make_due(query)
    outcomes: dict[int, Outcome] = {0: Retry(300.0, "later"), 1: Dead("never", "Why"), 2: DONE}

    async def decide(batch: Batch) -> list[Outcome]:
        return [outcomes[number_of(received)] for received in batch.messages]

    await one_partition.consume(SUBSCRIPTION, decide, burst=True)
    assert query("SELECT user_id, attributes, reason FROM clientmgr.delayed_message_t") == [
        ("key-0", {"colour": "red"}, "later")
    ]
    assert query("SELECT user_id, c_offset, error_class, attempts FROM clientmgr.dead_letter_queue") == [
        ("key-1", 2, "Why", 1)
    ]
    assert query("SELECT FROM clientmgr.held_queues") == []


async def test_a_permanent_error_in_a_held_queue_costs_only_its_group(
    one_partition: PostgresBroker, database: Database, query: Query
) -> None:
    await publish_groups(database, *([message(n)] for n in range(4)))
    await one_partition.consume(SUBSCRIPTION, Faulty(0), burst=True, options=ConsumerOptions(wait_period_ms=1))
    make_due(query)
    done: list[int] = []

    async def handle(batch: Batch) -> None:
        numbers = [number_of(received) for received in batch.messages]
        if 2 in numbers:
            raise PermanentError("poison")
        done.extend(numbers)

    await one_partition.consume(SUBSCRIPTION, handle, burst=True)
    assert done == [0, 1, 3]
    assert query("SELECT user_id FROM clientmgr.dead_letter_queue") == [("key-2",)]


async def hold_three(broker: PostgresBroker, database: Database, query: Query) -> None:
    await publish_groups(database, *([message(n, tenant="bad")] for n in range(3)), [message(9, tenant="good")])
    handler = Faulty(0)
    consuming = broker.consume(SUBSCRIPTION, handler, burst=True, options=ConsumerOptions(wait_period_ms=1))
    await consuming
    rest(query)
    assert handler.done == [("good", 9)]
    assert query("SELECT count(*) FROM clientmgr.held_message_t") == [(3,)]


async def test_a_dropped_group_holds_nothing(one_partition: PostgresBroker, database: Database, query: Query) -> None:
    await hold_three(one_partition, database, query)
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        await drop_group(connection, SUBSCRIPTION)
    assert query("SELECT FROM clientmgr.held_queues") == query("SELECT FROM clientmgr.held_message_t") == []


async def test_held_tenants_stay_held_when_the_topic_is_resized(
    one_partition: PostgresBroker, database: Database, query: Query
) -> None:
    await hold_three(one_partition, database, query)
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        await resize_topic(connection, TOPIC, 16)
    await publish_groups(database, [message(3, tenant="bad")])
    assert (await drain(one_partition))[0].numbers == []
    make_due(query)
    assert (await drain(one_partition))[0].numbers == [0, 1, 2, 3]


async def test_what_is_read_again_after_a_seek_does_not_come_from_the_queue_as_well(
    one_partition: PostgresBroker, database: Database, query: Query
) -> None:
    await hold_three(one_partition, database, query)
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        await seek_group(connection, SUBSCRIPTION, to_offset=2)
        # 0 lies before that, and is still held: the others have to wait behind it again.
        assert query("SELECT user_id FROM clientmgr.held_message_t") == [("key-0",)]
        recorder, _ = await drain(one_partition)
        assert [got.tenant for got in recorder.messages].count("good") == 1
        assert [number_of(got) for got in recorder.messages if got.tenant == "bad"] == [0, 1, 2]
        await seek_group(connection, SUBSCRIPTION, to_offset=1)
    assert (await drain(one_partition))[0].numbers == [0, 1, 2, 9]


async def test_a_queue_that_somebody_emptied_is_given_up(
    one_partition: PostgresBroker, database: Database, query: Query
) -> None:
    await hold_three(one_partition, database, query)
    query("DELETE FROM clientmgr.held_message_t")
    make_due(query)
    await drain(one_partition)
    assert query("SELECT FROM clientmgr.held_queues") == []


async def test_a_handler_that_takes_too_long_holds_its_own_tenant_only(
    one_partition: PostgresBroker, database: Database, query: Query
) -> None:
    await publish_groups(database, [message(1, tenant="slow")], [message(2, tenant="quick")])
    done: list[int] = []

    async def handle(batch: Batch) -> None:
        if any(received.tenant == "slow" for received in batch.messages):
            await batch.connection.execute("SELECT pg_sleep(600)")
        done.extend(number_of(received) for received in batch.messages)

    options = ConsumerOptions(max_attempts=2, handler_timeout_s=0.5)
    stats = await one_partition.consume(SUBSCRIPTION, handle, burst=True, options=options)
    assert (done, stats.dead) == ([2], 1)
    assert query("SELECT user_id, error_class, exception FROM clientmgr.dead_letter_queue") == [
        ("key-1", "HandlerTimeoutError", "the handler took longer than 0.5 s for 1 messages")
    ]


async def test_retries_that_fail_take_a_tenth_of_the_time_while_others_have_messages(
    one_partition: PostgresBroker, database: Database
) -> None:
    await publish_groups(database, [message(0, tenant="bad")], *([message(n, tenant="good")] for n in range(1, 121)))
    failing_s, stop = 0.05, asyncio.Event()
    begun: list[float] = []

    async def handle(batch: Batch) -> None:
        if batch.messages[0].tenant == "bad":
            begun.append(time.monotonic())
            await asyncio.sleep(failing_s)
            raise KeyError("nobody foresaw this")
        await batch.connection.execute("UPDATE clientmgr.held_queues SET not_before = now()")
        if number_of(batch.messages[0]) == 120:
            stop.set()

    options = ConsumerOptions(batch_size=1, max_attempts=1000)
    await one_partition.consume(SUBSCRIPTION, handle, options=options, stop=stop)
    assert len(begun) >= 2  # as it was found, and at least once again
    assert all(later - earlier >= failing_s * 10 for earlier, later in itertools.pairwise(begun[1:]))


async def test_a_batch_with_several_that_fail_is_found_apart_and_each_is_held_by_itself(
    one_partition: PostgresBroker, database: Database, query: Query
) -> None:
    tenants = [f"t{n}" for n in range(90)]
    await publish_groups(database, *([message(n, tenant=tenant)] for n, tenant in enumerate(tenants)))
    bad = {n for n in range(90) if n % 10 == 3} | {88}
    handler = Faulty(*bad)
    options = ConsumerOptions(batch_size=100, max_attempts=2)
    stats = await one_partition.consume(SUBSCRIPTION, handler, options=options, burst=True)
    assert (stats.done, stats.dead) == (80, 10)
    assert sorted(handler.done) == sorted((tenants[n], n) for n in range(90) if n not in bad)
    assert query("SELECT count(*), min(attempts), max(attempts) FROM clientmgr.dead_letter_queue") == [(10, 2, 2)]
