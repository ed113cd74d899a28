"""Claims: batches and their ends, partitions and turns, groups, what an idle consumer leaves untouched."""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clientmgr.base.database import Database, Role
from clientmgr.broker.interface import Batch, ConsumerOptions, Message, ReceivedMessage
from clientmgr.broker.postgres import consumer
from clientmgr.broker.postgres.claim import Claim, read_claim, send_claim
from clientmgr.broker.postgres.publish import append
from clientmgr.broker.postgres.topic_administration import UnknownSubscriptionError, find_subscription
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.broker.settling import TransactionEndedError
from tests.broker.recording import SUBSCRIPTION, TOPIC, Recorder, drain, message, messages, ready, until

pytestmark = pytest.mark.anyio

Query = Callable[..., list[tuple[Any, ...]]]


async def test_a_batch_never_ends_inside_a_transaction(log_broker: PostgresBroker, database: Database) -> None:
    await ready(log_broker)
    sizes = [1, 7, 3, 25, 2, 1, 1, 12, 4, 9, 30, 1]
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        for size in sizes:
            # Two tenants: a group of one lies between those of the other, in another partition.
            both = [
                Message(b"%d" % size, tenant=tenant, attributes={"of": str(size)})
                for _ in range(size)
                for tenant in "12"
            ]
            await append(connection, TOPIC, both)
    recorder, _ = await drain(log_broker, options=ConsumerOptions(batch_size=5))
    for batch in recorder.batches:
        counts: defaultdict[str, int] = defaultdict(int)
        for received in batch:
            counts[received.attributes["of"]] += 1
        assert all(count % int(size) == 0 for size, count in counts.items())
    assert len(recorder.messages) == 2 * sum(sizes)
    # Extended, but no further than needed: the transaction that fills the batch is its last.
    assert all(len(batch) < 5 or len(batch) - _last_transaction_size(batch) < 5 for batch in recorder.batches)


def _last_transaction_size(batch: list[ReceivedMessage]) -> int:
    return int(batch[-1].attributes["of"])


async def test_a_partition_is_in_one_hand_at_a_time(log_broker: PostgresBroker) -> None:
    await ready(log_broker)
    for number in range(20):
        await log_broker.publish(TOPIC, [message(number)])
    in_hand = most_in_hand = 0

    async def watch(_: Batch) -> None:
        nonlocal in_hand, most_in_hand
        in_hand += 1
        most_in_hand = max(most_in_hand, in_hand)
        await asyncio.sleep(0.01)
        in_hand -= 1

    options = ConsumerOptions(batch_size=2, concurrency=4)
    stats = await log_broker.consume(SUBSCRIPTION, watch, options=options, burst=True)
    assert (stats.done, stats.batches, most_in_hand) == (20, 10, 1)


async def test_a_busy_partition_does_not_starve_the_others(log_broker: PostgresBroker, query: Query) -> None:
    await ready(log_broker)
    for _ in range(30):
        await log_broker.publish(TOPIC, messages(range(10), tenant="1"))
    for tenant in range(2, 40):
        await log_broker.publish(TOPIC, [message(0, tenant=str(tenant))])
    recorder, _ = await drain(log_broker, options=ConsumerOptions(batch_size=10))
    partition_of: dict[str, int] = dict(query("SELECT DISTINCT host_id, partition_id FROM clientmgr.outbox_message_t"))
    turns = [partition_of[batch[0].tenant] for batch in recorder.batches]
    partitions = len(set(turns))
    assert partitions > 10
    assert len(set(turns[:partitions])) == partitions


async def test_a_pinned_consumer_reads_its_partition_only(log_broker: PostgresBroker, query: Query) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, [message(n, tenant=str(n)) for n in range(64)])
    [(expected,)] = query("SELECT count(*) FROM clientmgr.outbox_message_t WHERE partition_id = 5")
    recorder, _ = await drain(log_broker, options=ConsumerOptions(partition_id=5))
    assert 0 < len(recorder.messages) == expected


async def test_a_lost_claim_loses_the_work_with_it(log_broker: PostgresBroker, query: Query) -> None:
    """If the offset moved although we hold the partition, nothing of ours may be kept."""
    await ready(log_broker)
    query("CREATE TABLE written (n integer); GRANT INSERT ON written TO clientmgr_writer")
    await log_broker.publish(TOPIC, [message(1)])
    calls = 0

    async def lose_the_claim(batch: Batch) -> None:
        nonlocal calls
        calls += 1
        await batch.connection.execute("INSERT INTO written VALUES (1)")
        if calls == 1:
            # Stands for any way in which two could hold one partition: moved in our own transaction, behind our back.
            await batch.connection.execute("UPDATE clientmgr.consumer_offsets SET next_offset = next_offset + 1")

    await log_broker.consume(SUBSCRIPTION, lose_the_claim, burst=True)
    assert calls == 2
    assert query("SELECT count(*) FROM written") == [(1,)]


async def test_a_handler_that_commits_is_refused(log_broker: PostgresBroker) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, [message(1)])

    async def commits(batch: Batch) -> None:
        await batch.connection.commit()

    with pytest.raises(TransactionEndedError):
        await log_broker.consume(SUBSCRIPTION, commits, burst=True)
    recorder, _ = await drain(log_broker)
    assert recorder.numbers == [1]


async def test_a_handler_may_use_savepoints_and_pipelines(log_broker: PostgresBroker, query: Query) -> None:
    await ready(log_broker)
    query("CREATE TABLE written (n integer PRIMARY KEY); GRANT INSERT ON written TO clientmgr_writer")
    await log_broker.publish(TOPIC, [message(1)])

    async def elaborate(batch: Batch) -> None:
        async with batch.connection.transaction(force_rollback=True):
            await batch.connection.execute("INSERT INTO written VALUES (1)")
        async with batch.connection.pipeline(), batch.connection.transaction():
            await batch.connection.execute("INSERT INTO written VALUES (2)")
        await batch.connection.cursor().executemany("INSERT INTO written VALUES (%s)", [(3,), (4,)])

    stats = await log_broker.consume(SUBSCRIPTION, elaborate, burst=True)
    assert stats.done == 1
    assert query("SELECT n FROM written ORDER BY n") == [(2,), (3,), (4,)]


async def test_the_claims_plan_reads_only_its_own_partition(
    log_broker: PostgresBroker, database: Database, query: Query
) -> None:
    """Also when the plan was made while the log was empty, and nobody has analysed it since."""
    await ready(log_broker)
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        connection.prepare_threshold = 0
        subscription = await find_subscription(connection, SUBSCRIPTION)

        async def claim() -> Claim | None:
            cursor = await send_claim(connection, subscription, batch_size=10, only_partition=3)
            return await read_claim(cursor, TOPIC)

        for _ in range(12):
            assert await claim() is None
        query(
            """
            INSERT INTO clientmgr.outbox_message_t
                (topic_id, partition_id, c_offset, tx_last_offset, transaction_id, payload)
            SELECT %s, n %% 16, n, n, gen_random_uuid(), '' FROM generate_series(1, 40000) AS n
            """,
            subscription.topic_id,
        )
        async with connection.transaction(force_rollback=True):
            before = await _rows_read(connection)
            claimed = await claim()
            assert claimed is not None
            assert len(claimed.records) == 10
            assert await _rows_read(connection) - before < 200


async def _rows_read(connection: Any) -> int:
    cursor = await connection.execute("""
        SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::int FROM pg_stat_xact_user_tables
        WHERE relname = 'outbox_message_t'
    """)
    (rows,) = await cursor.fetchone()
    return int(rows)


async def test_idle_polls_write_nothing(log_broker: PostgresBroker, query: Query) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, messages(range(5)))
    stop, recorder = asyncio.Event(), Recorder()
    options = ConsumerOptions(wait_period_ms=5, concurrency=2)
    consuming = asyncio.create_task(log_broker.consume(SUBSCRIPTION, recorder, options=options, stop=stop))
    await until(lambda: len(recorder.messages) == 5, "the first messages")
    # A transaction that writes gets a number. Others in this server may write now and then; the polls would always.
    newest = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
    quiet = False
    for _ in range(50):
        before = query(newest)
        await asyncio.sleep(0.2)
        quiet = query(newest) == before
        if quiet:
            break
    stop.set()
    await consuming
    assert quiet


async def test_looks_become_rare_while_nothing_comes(
    log_broker: PostgresBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready(log_broker)
    looks: list[float] = []

    async def noted(*arguments: Any, **options: Any) -> Any:
        looks.append(time.monotonic())
        return await send_claim(*arguments, **options)

    monkeypatch.setattr(consumer, "send_claim", noted)
    stop, options = asyncio.Event(), ConsumerOptions(wait_period_ms=5)
    consuming = asyncio.create_task(log_broker.consume(SUBSCRIPTION, Recorder(), options=options, stop=stop))
    await log_broker.wakeups.wait_until_listening()
    since = len(looks)
    await until(lambda: len(looks) >= since + 9, "nine looks")
    stop.set()
    await asyncio.wait_for(consuming, 20)
    assert looks[-1] - looks[-2] >= 0.005 * consumer.IDLE_FACTOR


async def test_each_subscription_of_a_topic_hears_of_a_message_at_once(log_broker: PostgresBroker) -> None:
    await ready(log_broker)
    await log_broker.ensure_subscription("another", TOPIC)
    stop, options = asyncio.Event(), ConsumerOptions(wait_period_ms=60_000)
    recorders = {SUBSCRIPTION: Recorder(), "another": Recorder()}
    consuming = [
        asyncio.create_task(log_broker.consume(name, recorder, options=options, stop=stop))
        for name, recorder in recorders.items()
    ]
    await log_broker.wakeups.wait_until_listening()
    sent: list[int] = []
    for number in range(3):
        await log_broker.publish(TOPIC, [message(number)])
        sent.append(number)
        await until(lambda: [one.numbers for one in recorders.values()] == [sent, sent], "it comes to both")
    stop.set()
    await asyncio.wait_for(asyncio.gather(*consuming), 20)


@pytest.mark.parametrize("due", ["when it is published", "at once, by a change"])
async def test_an_idle_consumer_hears_of_what_is_set_aside(log_broker: PostgresBroker, query: Query, due: str) -> None:
    await ready(log_broker)
    stop, recorder = asyncio.Event(), Recorder()
    options = ConsumerOptions(wait_period_ms=60_000)
    consuming = asyncio.create_task(log_broker.consume(SUBSCRIPTION, recorder, options=options, stop=stop))
    await log_broker.publish(TOPIC, [message(0)])
    await until(lambda: recorder.numbers == [0], "the first message")
    later = timedelta(seconds=0.5) if due == "when it is published" else timedelta(hours=1)
    await log_broker.publish(TOPIC, [Message(b'{"n": 1}', tenant="1", deliver_at=datetime.now(UTC) + later)])
    if later > timedelta(minutes=1):
        query("UPDATE clientmgr.delayed_message_t SET not_before = now()")
    await until(lambda: recorder.numbers == [0, 1], "the one that was set aside")
    stop.set()
    await asyncio.wait_for(consuming, 20)


async def test_two_groups_do_not_notice_each_other(log_broker: PostgresBroker) -> None:
    await ready(log_broker)
    await log_broker.ensure_subscription("slow-reader", TOPIC)
    await log_broker.publish(TOPIC, messages(range(3)))
    await drain(log_broker)
    await log_broker.publish(TOPIC, messages(range(3, 5)))
    slow, _ = await drain(log_broker, subscription="slow-reader")
    quick, _ = await drain(log_broker)
    assert slow.numbers == [0, 1, 2, 3, 4]
    assert quick.numbers == [3, 4]


async def test_lingering_fills_a_batch(log_broker: PostgresBroker) -> None:
    await ready(log_broker)
    stop, recorder = asyncio.Event(), Recorder()
    options = ConsumerOptions(batch_size=10, linger_ms=5000)
    consuming = asyncio.create_task(log_broker.consume(SUBSCRIPTION, recorder, options=options, stop=stop))
    for number in range(10):
        await log_broker.publish(TOPIC, [message(number)])
    await until(lambda: len(recorder.messages) == 10, "the batch to fill up", 4.5)
    stop.set()
    await consuming
    assert [len(batch) for batch in recorder.batches] == [10]


async def test_consuming_a_subscription_that_does_not_exist_names_it(log_broker: PostgresBroker) -> None:
    with pytest.raises(UnknownSubscriptionError, match="no-such-subscription"):
        await log_broker.consume("no-such-subscription", Recorder(), burst=True)


async def test_a_woken_consumer_does_not_wait_for_the_next_poll(log_broker: PostgresBroker) -> None:
    await ready(log_broker)
    stop, recorder = asyncio.Event(), Recorder()
    options = ConsumerOptions(wait_period_ms=60_000, concurrency=3)
    consuming = asyncio.create_task(log_broker.consume(SUBSCRIPTION, recorder, options=options, stop=stop))
    for number in range(20):
        await log_broker.publish(TOPIC, [message(number, tenant=str(number))])
        await until(lambda number=number: len(recorder.messages) > number, "a wake-up")  # type: ignore[misc]
    stop.set()
    await asyncio.wait_for(consuming, 20)


async def test_what_comes_to_a_partition_in_hand_does_not_wait_for_the_next_poll(log_broker: PostgresBroker) -> None:
    await ready(log_broker)
    stop, go_on, recorder = asyncio.Event(), asyncio.Event(), Recorder()

    async def slowly(batch: Batch) -> None:
        await recorder(batch)
        await go_on.wait()

    options = ConsumerOptions(wait_period_ms=60_000, concurrency=3)
    consuming = asyncio.create_task(log_broker.consume(SUBSCRIPTION, slowly, options=options, stop=stop))
    await log_broker.wakeups.wait_until_listening()
    await log_broker.publish(TOPIC, [message(0)])
    await until(lambda: recorder.numbers == [0], "the first message to be in hand")
    await log_broker.publish(TOPIC, [message(1)])
    await log_broker.publish(TOPIC, [message(2, tenant="2")])
    await until(lambda: recorder.numbers == [0, 2], "the other tenant's, by another loop")
    go_on.set()
    await until(lambda: recorder.numbers == [0, 2, 1], "the one that came meanwhile")
    stop.set()
    await asyncio.wait_for(consuming, 20)


@pytest.mark.parametrize("concurrency", [1, 2, 5])
async def test_no_wake_up_is_ever_missed(log_broker: PostgresBroker, concurrency: int) -> None:
    """In many moments of each other's work: one missed, and its message would wait for a minute."""
    await ready(log_broker)
    chance = random.Random(concurrency)
    stop, recorder = asyncio.Event(), Recorder()

    async def at_its_own_pace(batch: Batch) -> None:
        await asyncio.sleep(chance.choice((0.0, 0.0, 0.001, 0.004)))
        await recorder(batch)

    options = ConsumerOptions(wait_period_ms=60_000, concurrency=concurrency, batch_size=3)
    consuming = asyncio.create_task(log_broker.consume(SUBSCRIPTION, at_its_own_pace, options=options, stop=stop))
    await log_broker.wakeups.wait_until_listening()
    published = 0

    def all_seen() -> bool:
        return len(recorder.messages) == published

    for _ in range(60):
        together = chance.randint(1, 5)
        for number in range(published, published + together):
            await log_broker.publish(TOPIC, [message(number, tenant=str(chance.randint(1, 6)))])
        published += together
        if chance.random() < 0.5:
            await until(all_seen, "all that was published so far")
    await until(all_seen, "the last ones")
    stop.set()
    await asyncio.wait_for(consuming, 20)
    assert sorted(recorder.numbers) == list(range(published))


async def test_no_connection_is_kept_after_consuming(log_broker: PostgresBroker, query: Query) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, messages(range(5)))
    await drain(log_broker, options=ConsumerOptions(concurrency=4))
    others = """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND query NOT LIKE '%append%'
    """
    await until(lambda: query(others) == [(0,)], "the connections to go")
