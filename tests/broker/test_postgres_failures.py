"""Handlers that fail: what is tried again, what is taken apart, what is set aside, and that nothing else is."""

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import PermanentError, TransientError
from clientmgr.broker.interface import DONE, Batch, ConsumerOptions, Dead, Message, Outcome, ReceivedMessage, Retry
from clientmgr.broker.postgres import consumer
from clientmgr.broker.postgres.claim import Claim, read_claim
from clientmgr.broker.postgres.publish import append_transactions
from clientmgr.broker.postgres.topic_administration import drop_group
from clientmgr.broker.postgres.transport import PostgresBroker
from tests.broker.recording import SUBSCRIPTION, TOPIC, Recorder, drain, message, messages, number_of, ready, until

pytestmark = pytest.mark.anyio

Query = Callable[..., list[tuple[Any, ...]]]
POISON = 13


async def publish_groups(database: Database, *groups: list[Message]) -> None:
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        await append_transactions(connection, TOPIC, groups)


async def insert_all_but_poison(batch: Batch) -> None:
    for received in batch.messages:
        await batch.connection.execute("INSERT INTO written VALUES (%s)", (number_of(received),))
    if any(number_of(received) == POISON for received in batch.messages):
        raise PermanentError("poison\0")


@pytest.fixture
def written(query: Query) -> Query:
    """A table `written(n)` that refuses a second 99, but only at COMMIT."""
    query("""
        CREATE TABLE written (n integer UNIQUE DEFERRABLE INITIALLY DEFERRED);
        GRANT SELECT, INSERT ON written TO clientmgr_writer
    """)
    return query


async def test_only_the_group_that_fails_is_dead_and_the_others_commit(
    log_broker: PostgresBroker, database: Database, written: Query
) -> None:
    await ready(log_broker)
    await publish_groups(database, messages(range(10)), messages(range(10, 15)), messages(range(15, 20)))

    stats = await log_broker.consume(SUBSCRIPTION, insert_all_but_poison, burst=True)

    assert (stats.done, stats.dead) == (15, 5)
    assert written("SELECT array_agg(n ORDER BY n) FROM written") == [([*range(10), *range(15, 20)],)]
    assert (
        written("""
        SELECT d.group_id, d.payload = m.payload, d.transaction_id = m.transaction_id, d.error_class, d.exception,
            d.attempts, d.host_id, d.user_id = m.user_id
        FROM clientmgr.dead_letter_queue AS d JOIN clientmgr.outbox_message_t AS m USING (topic_id, c_offset)
        ORDER BY c_offset
    """)
        == [(SUBSCRIPTION, True, True, "PermanentError", "poison\\0", 1, "1", True)] * 5
    )


async def test_a_batch_of_very_many_groups_is_taken_apart_in_several_commits(
    log_broker: PostgresBroker, database: Database, written: Query
) -> None:
    await ready(log_broker)
    await publish_groups(database, *([message(n)] for n in range(100)))
    stats = await log_broker.consume(SUBSCRIPTION, insert_all_but_poison, burst=True)
    assert (stats.done, stats.dead) == (99, 1)
    assert written("SELECT count(*), count(DISTINCT xmin::text) >= 3 FROM written") == [(99, True)]


async def test_what_groups_publish_during_a_fallback_stays_grouped(
    log_broker: PostgresBroker, database: Database, query: Query
) -> None:
    await ready(log_broker)
    await ready(log_broker, "results", "results-reader")
    await publish_groups(database, messages(range(2)), [message(POISON)], messages(range(20, 22)))

    async def forward(batch: Batch) -> None:
        batch.publish("results", [Message(got.data, tenant=got.tenant) for got in batch.messages])
        if any(number_of(got) == POISON for got in batch.messages):
            raise PermanentError("poison")

    await log_broker.consume(SUBSCRIPTION, forward, burst=True)
    recorder, _ = await drain(log_broker, subscription="results-reader")
    assert recorder.numbers == [0, 1, 20, 21]
    assert query("""
        SELECT count(DISTINCT transaction_id) FROM clientmgr.outbox_message_t
        WHERE topic_id = (SELECT id FROM clientmgr.log_counter WHERE topic = 'results')
    """) == [(2,)]


async def test_a_constraint_that_speaks_up_at_commit_costs_only_its_group(
    log_broker: PostgresBroker, database: Database, written: Query
) -> None:
    await ready(log_broker)
    written("INSERT INTO written VALUES (99)")
    await publish_groups(database, [message(1)], [message(99)], [message(2)])

    async def insert(batch: Batch) -> None:
        for received in batch.messages:
            await batch.connection.execute("INSERT INTO written VALUES (%s)", (number_of(received),))

    stats = await log_broker.consume(SUBSCRIPTION, insert, burst=True)
    assert (stats.done, stats.dead) == (2, 1)
    assert written("SELECT error_class FROM clientmgr.dead_letter_queue") == [("UniqueViolation",)]


async def test_publishing_to_a_missing_topic_costs_only_the_group_that_did(
    log_broker: PostgresBroker, database: Database, query: Query
) -> None:
    await ready(log_broker)
    await ready(log_broker, "results", "results-reader")
    await publish_groups(database, [message(1)], [message(2)], [message(3)])

    async def forward(batch: Batch) -> None:
        for received in batch.messages:
            batch.publish("no-such-topic" if number_of(received) == 2 else "results", [Message(received.data)])

    stats = await log_broker.consume(SUBSCRIPTION, forward, burst=True)
    recorder, _ = await drain(log_broker, subscription="results-reader")
    assert (stats.done, stats.dead) == (2, 1)
    assert recorder.numbers == [1, 3]
    [(reason,)] = query("SELECT exception FROM clientmgr.dead_letter_queue")
    assert "no-such-topic" in reason


async def test_an_outage_however_long_kills_no_message(log_broker: PostgresBroker, query: Query) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, messages(range(3)))
    for outage in range(8):

        async def unavailable(_: Batch) -> None:
            raise psycopg.OperationalError("the other database is away")

        query("UPDATE clientmgr.consumer_offsets SET retry_at = NULL")
        await log_broker.consume(SUBSCRIPTION, unavailable, burst=True, options=ConsumerOptions(max_attempts=2))
        assert query("SELECT max(attempts) FROM clientmgr.consumer_offsets")[0][0] > outage
    assert query("SELECT count(*) FROM clientmgr.dead_letter_queue") == [(0,)]
    query("UPDATE clientmgr.consumer_offsets SET retry_at = NULL")
    recorder, _ = await drain(log_broker)
    assert recorder.numbers == [0, 1, 2]
    assert recorder.messages[0].attempt > 8
    assert query("SELECT max(attempts), max(retry_at) FROM clientmgr.consumer_offsets") == [(0, None)]


async def test_a_transient_error_during_the_fallback_kills_nothing_and_keeps_what_was_done(
    log_broker: PostgresBroker, database: Database, written: Query
) -> None:
    await ready(log_broker)
    await publish_groups(database, [message(1)], [message(POISON)], [message(2)], [message(3)])
    outage = True

    async def handle(batch: Batch) -> None:
        nonlocal outage
        await insert_all_but_poison(batch)
        if outage and [number_of(received) for received in batch.messages] == [2]:
            outage = False
            raise TransientError("just now")

    stats = await log_broker.consume(SUBSCRIPTION, handle, burst=True)
    assert (stats.done, stats.dead) == (3, 1)
    assert written("SELECT array_agg(n ORDER BY n) FROM written") == [([1, 2, 3],)]


async def test_a_burst_waits_for_a_failed_batch_however_slow_its_look_is(
    log_broker: PostgresBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, [message(1)])
    failures = iter([TransientError("just now")])

    async def read_claim_slowly(cursor: Any, topic: str) -> Claim | None:
        """When it found nothing, a busy machine gives us no time until the batch has rested for long enough."""
        claim = await read_claim(cursor, topic)
        if claim is None:
            await asyncio.sleep(0.4)
        return claim

    def fail_once(_received: ReceivedMessage) -> Outcome:
        for failure in failures:
            raise failure
        return DONE

    monkeypatch.setattr(consumer, "read_claim", read_claim_slowly)
    assert (await log_broker.consume(SUBSCRIPTION, Recorder(fail_once), burst=True)).done == 1


async def test_a_newcomer_to_a_failing_batch_has_its_own_attempts(
    log_broker: PostgresBroker, database: Database, query: Query
) -> None:
    await ready(log_broker)
    await publish_groups(database, [message(1)])
    newcomer_failed = False

    async def handle(batch: Batch) -> None:
        nonlocal newcomer_failed
        numbers = [number_of(received) for received in batch.messages]
        if 1 in numbers:
            if batch.messages[0].attempt == 2 and 2 not in numbers:
                await publish_groups(database, [message(2)])
            raise ZeroDivisionError
        if not newcomer_failed:
            newcomer_failed = True
            raise ZeroDivisionError

    stats = await log_broker.consume(SUBSCRIPTION, handle, burst=True, options=ConsumerOptions(max_attempts=3))
    assert (stats.done, stats.dead) == (1, 1)
    assert query("SELECT user_id, attempts FROM clientmgr.dead_letter_queue") == [("key-1", 3)]


async def test_too_few_outcomes_are_the_handlers_failure(log_broker: PostgresBroker, query: Query) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, messages(range(2)))

    async def forgetful(_: Batch) -> list[Outcome]:
        return []

    stats = await log_broker.consume(SUBSCRIPTION, forgetful, burst=True, options=ConsumerOptions(max_attempts=1))
    assert stats.dead == 2
    [(reason,)] = query("SELECT DISTINCT exception FROM clientmgr.dead_letter_queue")
    assert reason == "the handler gave 0 outcomes for 2 messages"


async def test_a_dead_message_keeps_its_reason(log_broker: PostgresBroker, query: Query) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, [message(1, colour="red")])
    await drain(log_broker, Recorder(lambda _: Dead("no such device", "UnknownDevice")))
    assert query("""
        SELECT group_id, c_offset, error_class, exception, attributes, attempts, replayed_at
        FROM clientmgr.dead_letter_queue
    """) == [(SUBSCRIPTION, 1, "UnknownDevice", "no such device", {"colour": "red"}, 1, None)]


async def test_a_group_made_anew_may_find_its_dead_letters_again(
    log_broker: PostgresBroker, database: Database, query: Query
) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, messages(range(2)))
    await drain(log_broker, Recorder(lambda _: Dead("at first")))
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        await drop_group(connection, SUBSCRIPTION)
    await ready(log_broker)
    await drain(log_broker, Recorder(lambda _: Dead("again")))
    assert query("SELECT c_offset, exception FROM clientmgr.dead_letter_queue ORDER BY c_offset") == [
        (1, "again"),
        (2, "again"),
    ]


async def test_a_retry_is_seen_by_its_own_group_only(log_broker: PostgresBroker, query: Query) -> None:
    await ready(log_broker)
    await log_broker.ensure_subscription("second-reader", TOPIC)
    await log_broker.publish(TOPIC, messages(range(3)))
    first, _ = await drain(
        log_broker, Recorder(lambda got: Retry(0.01) if number_of(got) == 1 and got.attempt < 3 else Dead("end"))
    )
    second, stats = await drain(log_broker, subscription="second-reader")
    assert first.numbers == [0, 1, 2, 1, 1]
    assert second.numbers == [0, 1, 2]
    assert stats.done == 3
    # Passed over all the same: or retention would wait for the second reader for ever.
    assert query("""
        SELECT min(o.next_offset) FROM clientmgr.consumer_offsets AS o
        WHERE o.group_id = 'second-reader' AND o.partition_id = clientmgr.partition_of('1', 16)
    """) == [(6,)]


async def test_a_retry_that_waits_is_put_back_by_whoever_consumes_when_it_is_due(
    log_broker: PostgresBroker, query: Query
) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, [message(1)])
    await drain(log_broker, Recorder(lambda _: Retry(300.0, "later")))
    assert query("SELECT attempts, reason, original_offset FROM clientmgr.delayed_message_t") == [(1, "later", 1)]
    query("UPDATE clientmgr.delayed_message_t SET not_before = now()")
    recorder, _ = await drain(log_broker)
    assert [(got.attempt, got.message_id) for got in recorder.messages] == [(2, "1")]
    assert query("SELECT count(*) FROM clientmgr.delayed_message_t") == [(0,)]


async def test_a_running_consumer_delivers_a_retry_soon_after_it_is_due(log_broker: PostgresBroker) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, [message(1)])
    recorder, stop = Recorder(lambda got: Retry(0.2) if got.attempt == 1 else Dead("end")), asyncio.Event()
    options = ConsumerOptions(wait_period_ms=60_000)
    consuming = asyncio.create_task(log_broker.consume(SUBSCRIPTION, recorder, options=options, stop=stop))
    await until(lambda: len(recorder.messages) == 2, "the retry", 15)
    stop.set()
    await consuming


async def test_a_failing_partition_rests_while_the_others_go_on(log_broker: PostgresBroker, query: Query) -> None:
    await ready(log_broker)
    for n in range(3):
        await log_broker.publish(TOPIC, [message(n, tenant="1"), message(n, tenant="2")])

    query("""
        UPDATE clientmgr.consumer_offsets SET retry_at = now() + interval '1 hour'
        WHERE partition_id = clientmgr.partition_of('1', 16)
    """)
    recorder, _ = await drain(log_broker)
    assert [received.tenant for received in recorder.messages] == ["2", "2", "2"]
