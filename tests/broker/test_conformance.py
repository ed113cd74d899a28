"""What every transport promises, in one suite: it knows nothing but `clientmgr.broker.interface`."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clientmgr.base.database import Database
from clientmgr.base.errors import InvalidInputError, PermanentError, TransientError
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import (
    DONE,
    Batch,
    Broker,
    ConsumerOptions,
    Dead,
    Message,
    Outcome,
    ReceivedMessage,
    Retry,
)
from tests.broker.conftest import TRANSPORTS
from tests.broker.recording import SUBSCRIPTION, TOPIC, Recorder, drain, message, messages, number_of, ready, until

pytestmark = pytest.mark.anyio

Query = Callable[..., list[tuple[Any, ...]]]


async def test_a_message_arrives_as_it_was_published(broker: Broker) -> None:
    await ready(broker)
    before = datetime.now(UTC) - timedelta(minutes=1)
    data = '{"text": "naïve \\u00e9 ✓", "n":  1 }'.encode()
    await broker.publish(TOPIC, [Message(data, tenant="42", key="device-7", attributes={"kind": "ünïcode", "n": "1"})])

    recorder, stats = await drain(broker)

    [received] = recorder.messages
    assert (received.data, received.tenant, received.key) == (data, "42", "device-7")
    assert dict(received.attributes) == {"kind": "ünïcode", "n": "1"}
    assert received.topic == TOPIC
    assert received.attempt == 1
    assert before < received.published_at < datetime.now(UTC) + timedelta(minutes=1)
    assert (stats.done, stats.retried, stats.dead) == (1, 0, 0)


async def test_messages_have_ids_of_their_own(broker: Broker) -> None:
    await ready(broker)
    await broker.publish(TOPIC, messages(range(20)))
    recorder, _ = await drain(broker)
    assert len({received.message_id for received in recorder.messages}) == 20


async def test_messages_of_a_tenant_keep_their_order(broker: Broker) -> None:
    await ready(broker)
    for start in range(0, 60, 5):
        for tenant in ("1", "2", "3"):
            await broker.publish(TOPIC, messages(range(start, start + 5), tenant=tenant))
    recorder, _ = await drain(broker, options=ConsumerOptions(batch_size=7))
    for tenant in ("1", "2", "3"):
        assert [number_of(got) for got in recorder.messages if got.tenant == tenant] == list(range(60))


async def test_every_subscription_gets_every_message(broker: Broker) -> None:
    await ready(broker)
    await broker.ensure_subscription("second-reader", TOPIC)
    await broker.publish(TOPIC, messages(range(10)))
    first, _ = await drain(broker)
    second, _ = await drain(broker, subscription="second-reader")
    assert first.numbers == second.numbers == list(range(10))


async def test_consumers_of_one_subscription_share_its_messages(broker: Broker) -> None:
    await ready(broker)
    for tenant in range(20):
        await broker.publish(TOPIC, messages(range(10), tenant=str(tenant)))
    recorder = Recorder()
    options = ConsumerOptions(batch_size=5, concurrency=2)
    await asyncio.gather(*(drain(broker, recorder, options=options) for _ in range(2)))
    assert len(recorder.messages) == 200
    assert len({(got.tenant, number_of(got)) for got in recorder.messages}) == 200


async def test_a_subscription_from_now_on_sees_nothing_older(broker: Broker) -> None:
    await broker.ensure_topic(TOPIC)
    await broker.publish(TOPIC, [message(1)])
    await broker.ensure_subscription(SUBSCRIPTION, TOPIC, from_start=False)
    await broker.publish(TOPIC, [message(2)])
    recorder, _ = await drain(broker)
    assert recorder.numbers == [2]


async def test_a_subscription_from_the_start_sees_what_was_there(broker: Broker) -> None:
    await broker.ensure_topic(TOPIC)
    await broker.publish(TOPIC, [message(1)])
    await broker.ensure_subscription(SUBSCRIPTION, TOPIC, from_start=True)
    await broker.publish(TOPIC, [message(2)])
    recorder, _ = await drain(broker)
    assert recorder.numbers == [1, 2]


async def test_making_a_subscription_again_leaves_it_where_it_is(broker: Broker) -> None:
    await ready(broker)
    await broker.publish(TOPIC, [message(1)])
    await drain(broker)
    await ready(broker)
    recorder, _ = await drain(broker)
    assert recorder.numbers == []


async def test_what_is_done_does_not_come_again(broker: Broker) -> None:
    await ready(broker)
    await broker.publish(TOPIC, messages(range(10)))
    await drain(broker)
    recorder, _ = await drain(broker)
    assert recorder.numbers == []


@pytest.mark.parametrize("transport", list(TRANSPORTS))
async def test_the_databases_own_default_isolation_does_not_matter(
    transport: str, database: Database, settings_for: Callable[[Database], Settings], query: Query
) -> None:
    query(
        "DO $$ BEGIN EXECUTE format("
        "'ALTER DATABASE %I SET default_transaction_isolation TO serializable', current_database()); END $$"
    )
    async with TRANSPORTS[transport](database, settings_for(database)) as broker:
        await ready(broker)
        await asyncio.gather(*(broker.publish(TOPIC, [message(n, tenant=str(n))]) for n in range(40)))
        recorder, stats = await drain(broker, options=ConsumerOptions(concurrency=4, batch_size=3))
    assert (stats.done, sorted(recorder.numbers)) == (40, list(range(40)))


async def test_a_retry_comes_again_after_its_delay_with_the_next_attempt_number(broker: Broker) -> None:
    await ready(broker)
    await broker.publish(TOPIC, [message(1)])
    seen: list[tuple[int, float]] = []

    def once_more(received: ReceivedMessage) -> Outcome:
        seen.append((received.attempt, time.monotonic()))
        return Retry(0.3) if received.attempt == 1 else DONE

    recorder, stats = await drain(broker, Recorder(once_more))

    assert [attempt for attempt, _ in seen] == [1, 2]
    assert seen[1][1] - seen[0][1] >= 0.3
    assert recorder.messages[0].message_id == recorder.messages[1].message_id
    assert recorder.messages[0].data == recorder.messages[1].data
    assert (stats.done, stats.retried) == (1, 1)


async def test_a_message_that_is_put_off_untried_comes_again_with_the_same_attempt_number(broker: Broker) -> None:
    await ready(broker)
    await broker.publish(TOPIC, [message(1)])
    answers: list[Outcome] = [Retry(0.01, is_attempt=False), Retry(0.01), Retry(0.01, is_attempt=False), DONE]
    recorder, stats = await drain(broker, Recorder(lambda _: answers.pop(0)))

    assert [received.attempt for received in recorder.messages] == [1, 1, 2, 2]
    assert (stats.done, stats.retried) == (1, 3)


async def test_a_waiting_retry_holds_up_no_other_message(broker: Broker) -> None:
    await ready(broker)
    await broker.publish(TOPIC, [message(1)])
    await drain(broker, Recorder(lambda _: Retry(300.0)))
    await broker.publish(TOPIC, [message(2)])
    recorder, _ = await drain(broker)
    assert recorder.numbers == [2]


async def test_a_burst_leaves_retries_that_are_not_due(broker: Broker) -> None:
    await ready(broker)
    await broker.publish(TOPIC, [message(1)])
    started = time.monotonic()
    _, stats = await drain(broker, Recorder(lambda _: Retry(300.0)))
    assert stats.retried == 1
    assert time.monotonic() - started < 10.0


async def test_a_dead_message_is_set_aside_alone(broker: Broker) -> None:
    await ready(broker)
    await broker.publish(TOPIC, messages(range(5)))

    def third_is_dead(received: ReceivedMessage) -> Outcome:
        return Dead("never", "TestError") if number_of(received) == 3 else DONE

    _, stats = await drain(broker, Recorder(third_is_dead))
    again, _ = await drain(broker)
    assert (stats.done, stats.dead) == (4, 1)
    assert again.numbers == []


async def test_a_batch_that_fails_for_a_while_comes_again_until_it_succeeds(broker: Broker) -> None:
    await ready(broker)
    await broker.publish(TOPIC, messages(range(3)))
    failures_left = 3

    def sometimes(_: ReceivedMessage) -> Outcome:
        nonlocal failures_left
        if failures_left:
            failures_left -= 1
            raise TransientError("the store is away")
        return DONE

    recorder, stats = await drain(broker, Recorder(sometimes))
    assert (stats.done, stats.dead) == (3, 0)
    assert set(recorder.numbers) == {0, 1, 2}


async def test_only_the_message_that_can_not_succeed_is_dead(broker: Broker) -> None:
    await ready(broker)
    for number in range(10):
        await broker.publish(TOPIC, [message(number)])
    succeeded: list[int] = []

    async def fourth_is_poison(batch: Batch) -> None:
        if any(number_of(received) == 4 for received in batch.messages):
            raise PermanentError("poison")
        succeeded.extend(number_of(received) for received in batch.messages)

    stats = await broker.consume(SUBSCRIPTION, fourth_is_poison, burst=True)
    assert sorted(succeeded) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert (stats.done, stats.dead) == (9, 1)


async def test_an_error_that_nobody_foresaw_is_dead_once_its_attempts_run_out(broker: Broker) -> None:
    await ready(broker)
    await broker.publish(TOPIC, [message(1)])

    def broken(_: ReceivedMessage) -> Outcome:
        raise ZeroDivisionError

    recorder, stats = await drain(broker, Recorder(broken), options=ConsumerOptions(max_attempts=3))
    assert stats.dead == 1
    assert len(recorder.messages) >= 3


@pytest.mark.parametrize("end", [SystemExit(1), asyncio.CancelledError()], ids=["exits", "is cancelled by itself"])
async def test_a_handler_that_ends_itself_has_failed_like_any_other(broker: Broker, end: BaseException) -> None:
    await ready(broker)
    for number in range(4):
        await broker.publish(TOPIC, [message(number, tenant=str(number))])

    def ends(received: ReceivedMessage) -> Outcome:
        if number_of(received) == 2:
            raise end
        return DONE

    _, stats = await drain(broker, Recorder(ends), options=ConsumerOptions(max_attempts=2))
    assert (stats.done, stats.dead) == (3, 1)


async def test_what_a_handler_publishes_arrives(broker: Broker) -> None:
    await ready(broker)
    await ready(broker, "results", "results-reader")
    await broker.publish(TOPIC, messages(range(3)))

    async def forward(batch: Batch) -> None:
        batch.publish("results", [Message(got.data, tenant=got.tenant, key=got.key) for got in batch.messages])

    await broker.consume(SUBSCRIPTION, forward, burst=True)
    recorder, _ = await drain(broker, subscription="results-reader")
    assert recorder.numbers == [0, 1, 2]


async def test_a_handler_that_fails_has_published_and_written_nothing(broker: Broker, query: Query) -> None:
    await ready(broker)
    await ready(broker, "results", "results-reader")
    query("CREATE TABLE written (n integer); GRANT INSERT ON written TO clientmgr_writer")
    await broker.publish(TOPIC, [message(1)])
    attempts = 0

    async def fail_after_work(batch: Batch) -> None:
        nonlocal attempts
        attempts += 1
        await batch.connection.execute("INSERT INTO written VALUES (%s)", (attempts,))
        batch.publish("results", [message(attempts)])
        if attempts < 3:
            raise TransientError("too bad")

    await broker.consume(SUBSCRIPTION, fail_after_work, burst=True)
    recorder, _ = await drain(broker, subscription="results-reader")
    assert recorder.numbers == [3]
    assert query("SELECT n FROM written") == [(3,)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a": "\0"}', "NUL"),
        (b'{"a": ', "JSON"),
        (b'"\xff"', "JSON"),
        (b'"' + b"x" * 10_000_000 + b'"', "at most"),
    ],
    ids=["NUL", "cut off", "not UTF-8", "10 MB"],
)
async def test_a_payload_that_no_handler_could_read_is_refused_by_name(
    broker: Broker, data: bytes, expected: str
) -> None:
    await ready(broker)
    with pytest.raises(InvalidInputError, match=f"^data: .*{expected}"):
        await broker.publish(TOPIC, [message(1), Message(data)])
    recorder, _ = await drain(broker)
    assert recorder.messages == []


async def test_publishing_to_a_topic_that_does_not_exist_names_it(broker: Broker) -> None:
    with pytest.raises(PermanentError, match="no-such-topic"):
        await broker.publish("no-such-topic", [message(1)])


async def test_stopping_finishes_the_batch_in_hand(broker: Broker) -> None:
    await ready(broker)
    await broker.publish(TOPIC, [message(1)])
    stop, entered, finished = asyncio.Event(), asyncio.Event(), False

    async def slow(_: Batch) -> None:
        nonlocal finished
        entered.set()
        await stop.wait()
        await asyncio.sleep(0.05)
        finished = True

    consuming = asyncio.create_task(broker.consume(SUBSCRIPTION, slow, stop=stop))
    await asyncio.wait_for(entered.wait(), 20)
    stop.set()
    stats = await asyncio.wait_for(consuming, 20)
    again, _ = await drain(broker)
    assert finished
    assert stats.done == 1
    assert again.messages == []


async def test_a_cancelled_consumer_loses_nothing(broker: Broker) -> None:
    await ready(broker)
    await broker.publish(TOPIC, [message(1)])
    entered = asyncio.Event()

    async def hang(_: Batch) -> None:
        entered.set()
        await asyncio.sleep(3600)

    consuming = asyncio.create_task(broker.consume(SUBSCRIPTION, hang))
    await asyncio.wait_for(entered.wait(), 20)
    consuming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consuming
    recorder = Recorder()
    stop = asyncio.Event()
    again = asyncio.create_task(broker.consume(SUBSCRIPTION, recorder, stop=stop))
    await until(lambda: recorder.numbers == [1], "the message to come again", 30)
    stop.set()
    await again


async def test_a_waiting_consumer_is_woken_by_a_message(broker: Broker) -> None:
    await ready(broker)
    recorder, stop = Recorder(), asyncio.Event()
    consuming = asyncio.create_task(broker.consume(SUBSCRIPTION, recorder, stop=stop))
    for number in range(3):
        await broker.publish(TOPIC, [message(number)])
        await until(lambda number=number: number in recorder.numbers, f"message {number}")  # type: ignore[misc]
    stop.set()
    stats = await asyncio.wait_for(consuming, 20)
    assert stats.done == 3
