"""What only the Pub/Sub transport does: resources on the server, leases, flow control, and a server that goes away."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import InvalidInputError, PermanentError, TransientError
from clientmgr.base.settings import Settings
from clientmgr.broker.gateway.server import Gateway
from clientmgr.broker.interface import DONE, Batch, ConsumerOptions, Dead, Message, Outcome, ReceivedMessage, Retry
from clientmgr.broker.postgres.lag import subscription_lag
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.broker.pubsub.client import PubSubClient
from clientmgr.broker.pubsub.resources import MissingResourcesError
from clientmgr.broker.pubsub.transport import PubSubBroker, PubSubUnavailableError
from clientmgr.broker.pubsub.wire import Delivery
from clientmgr.broker.settling import TransactionEndedError
from clientmgr.local.embedded.server import free_port
from tests.broker.recording import SUBSCRIPTION, TOPIC, Recorder, drain, message, messages, number_of, ready, until
from tests.gateway.process import GatewayProcess

pytestmark = pytest.mark.anyio

Query = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
async def settings(
    anyio_backend: str, database: Database, settings_for: Callable[[Database], Settings]
) -> AsyncIterator[Settings]:
    """With a gateway that plays Google."""
    settings = settings_for(database).model_copy(update={"pubsub_gateway_port": 0, "broker_wait_period_ms": 200})
    async with Gateway(settings, database) as gateway:
        yield settings.model_copy(update={"pubsub_emulator_host": gateway.address})


def opened(database: Database, settings: Settings, **changes: Any) -> PubSubBroker:
    return PubSubBroker(database, settings.model_copy(update=changes), burst_quiet_s=0.2, retry_for_s=3.0)


async def test_all_that_is_missing_is_named_where_nothing_may_be_made(database: Database, settings: Settings) -> None:
    async with opened(database, settings, pubsub_create_missing=False) as broker:
        with pytest.raises(MissingResourcesError) as raised:
            await broker.ensure(["first", "second"], {"third": "first", "fourth": "second"})
        assert "topic first, topic second, subscription third, subscription fourth" in str(raised.value)
        with pytest.raises(MissingResourcesError, match="subscription third"):
            await broker.ensure_subscription("third", "first")
        with pytest.raises(MissingResourcesError, match="subscription nobodys"):
            await drain(broker, subscription="nobodys")


async def test_a_subscription_is_made_as_the_settings_say(database: Database, settings: Settings) -> None:
    changes = {"pubsub_ack_deadline_s": 77, "pubsub_dead_letter_topic": "lost", "pubsub_max_delivery_attempts": 9}
    async with opened(database, settings, **changes) as broker:
        await ready(broker)
        await broker.ensure_topic("another-topic")
        with pytest.raises(PermanentError, match="orders, not another-topic"):
            await broker.ensure_subscription(SUBSCRIPTION, "another-topic")
    client = PubSubClient(settings)
    await client.open()
    made = await client.find_subscription(SUBSCRIPTION)
    await client.close()
    assert made is not None
    assert made.ack_deadline_seconds == 77
    assert made.enable_message_ordering
    assert made.dead_letter_policy.dead_letter_topic.endswith("/topics/lost")
    assert made.dead_letter_policy.max_delivery_attempts == 9


async def test_both_transports_read_the_same_message_alike(database: Database, settings: Settings) -> None:
    async with opened(database, settings) as pubsub, PostgresBroker(database, settings) as postgres:
        await ready(pubsub)
        await postgres.ensure_subscription("reader-of-the-log", TOPIC)
        await pubsub.publish(TOPIC, [message(1, tenant="7", kind="one")])
        await postgres.publish(TOPIC, [message(2, tenant="7", kind="two")])
        through_pubsub, _ = await drain(pubsub)
        through_postgres, _ = await drain(postgres, subscription="reader-of-the-log")
    assert through_pubsub.messages == through_postgres.messages


async def test_a_dead_message_lies_in_the_same_dead_letters(
    database: Database, settings: Settings, query: Query
) -> None:
    async with opened(database, settings) as broker:
        await ready(broker)
        await broker.publish(TOPIC, [message(1, tenant="7", kind="one")])
        await drain(broker, Recorder(lambda _: Dead("no good", "TestError")))
    columns = "group_id, c.topic, c_offset, host_id, user_id, payload, attributes, error_class, exception, attempts"
    assert query(
        f"SELECT {columns} FROM clientmgr.dead_letter_queue d JOIN clientmgr.log_counter c ON c.id = d.topic_id"
    ) == [(SUBSCRIPTION, TOPIC, 1, "7", "key-1", b'{"n": 1}', {"kind": "one"}, "TestError", "no good", 1)]


async def test_a_message_is_acknowledged_after_the_commit_and_what_it_published(
    database: Database, settings: Settings, query: Query
) -> None:
    """The server refuses what is published at the last moment: the batch is not acknowledged but handled again."""
    calls = 0
    async with opened(database, settings) as broker:
        await ready(broker)
        await ready(broker, "results", "results-reader")
        query("CREATE TABLE written (n integer PRIMARY KEY); GRANT INSERT ON written TO clientmgr_writer")
        await broker.publish(TOPIC, [message(1)])

        async def forward(batch: Batch) -> None:
            nonlocal calls
            calls += 1
            await batch.connection.execute("INSERT INTO written VALUES (1) ON CONFLICT DO NOTHING")
            batch.publish("results", [message(1)])
            if calls == 1:
                # Behind the transport's back, after it has seen that the topic exists.
                await broker._resources.require_topics(["results"])
                query("UPDATE clientmgr.gateway_topics SET deleted_at = now() WHERE name LIKE '%%results'")
            else:
                query("UPDATE clientmgr.gateway_topics SET deleted_at = NULL")

        await broker.consume(SUBSCRIPTION, forward, burst=True)
        recorder, _ = await drain(broker, subscription="results-reader")
    assert calls == 2
    assert recorder.numbers == [1]
    assert query("SELECT n FROM written") == [(1,)]


@pytest.mark.parametrize("retried", [False, True])
async def test_a_message_that_publishes_to_a_topic_that_is_gone_is_dead(
    database: Database, settings: Settings, query: Query, retried: bool
) -> None:
    async with opened(database, settings) as broker:
        await ready(broker)
        await ready(broker, "results", "results-reader")
        await broker.publish(TOPIC, [message(1)])
        # The transport has seen that the topic exists, and does not ask again.
        await broker._resources.require_topics(["results"])
        query("UPDATE clientmgr.gateway_topics SET deleted_at = now() WHERE name LIKE '%%results'")

        async def forward(batch: Batch) -> list[Outcome]:
            if retried and batch.messages[0].attempt == 1:
                return [Retry(0.05)]
            batch.publish("results", [message(1)])
            return [DONE]

        options = ConsumerOptions(max_attempts=2)
        stats = await asyncio.wait_for(broker.consume(SUBSCRIPTION, forward, options=options, burst=True), 20)
    assert (stats.done, stats.dead) == (0, 1)
    ((error_class, exception),) = query("SELECT error_class, exception FROM clientmgr.dead_letter_queue")
    assert error_class == "MissingResourcesError"
    assert "topic results" in exception


async def test_attempts_are_counted_until_what_a_message_published_is_out(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch, query: Query
) -> None:
    attempts: list[int] = []
    async with opened(database, settings) as broker:
        await ready(broker)
        await ready(broker, "results", "results-reader")
        await broker.publish(TOPIC, [message(1)])
        publish = broker._client.publish

        async def refuse_twice(*arguments: Any) -> None:
            if len(attempts) <= 2:
                raise exceptions.ServiceUnavailable("away")
            await publish(*arguments)

        async def forward(batch: Batch) -> None:
            attempts.append(batch.messages[0].attempt)
            batch.publish("results", [message(1)])

        monkeypatch.setattr(broker._client, "publish", refuse_twice)
        stats = await broker.consume(SUBSCRIPTION, forward, burst=True)
    assert attempts == [1, 2, 3]
    assert stats.done == 1
    assert query("SELECT count(*) FROM clientmgr.pubsub_attempts") == [(0,)]


async def test_leases_are_extended_while_a_batch_is_handled(
    database: Database, settings: Settings, query: Query
) -> None:
    async with opened(database, settings, pubsub_ack_deadline_s=10) as broker:
        await ready(broker)
        await broker.publish(TOPIC, [message(1)])

        async def slow(_: Batch) -> None:
            lease = "SELECT lease_until FROM clientmgr.gateway_deliveries"
            before = query(lease)
            await until(lambda: query(lease) > before, "a longer lease")

        stats = await broker.consume(SUBSCRIPTION, slow, burst=True)
    assert stats.done == 1


async def test_no_more_is_in_hand_than_flow_control_allows(database: Database, settings: Settings) -> None:
    in_hand = most = 0

    async def watch(batch: Batch) -> None:
        nonlocal in_hand, most
        in_hand += len(batch.messages)
        most = max(most, in_hand)
        await asyncio.sleep(0.01)
        in_hand -= len(batch.messages)

    async with opened(database, settings, pubsub_max_outstanding_messages=5) as broker:
        await ready(broker)
        await broker.publish(TOPIC, [message(n, tenant=str(n)) for n in range(40)])
        options = ConsumerOptions(batch_size=100, concurrency=3)
        stats = await broker.consume(SUBSCRIPTION, watch, options=options, burst=True)
    assert stats.done == 40
    assert 0 < most <= 5


async def test_a_lingering_consumer_waits_for_its_batch_to_fill(database: Database, settings: Settings) -> None:
    async with opened(database, settings) as broker:
        await ready(broker)
        recorder, stop = Recorder(), asyncio.Event()
        options = ConsumerOptions(batch_size=10, linger_ms=3000)
        consuming = asyncio.create_task(broker.consume(SUBSCRIPTION, recorder, options=options, stop=stop))
        for number in range(10):
            await broker.publish(TOPIC, [message(number, tenant=str(number))])
        await until(lambda: len(recorder.messages) == 10, "the batch")
        stop.set()
        await consuming
    assert len(recorder.batches) <= 2


async def test_what_was_pulled_is_handled_though_the_server_goes_away_while_lingering(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More often than flow control has room for messages: none of them may stay counted as in hand."""

    async def away(*_: Any) -> list[Delivery]:
        raise exceptions.ServiceUnavailable("away")

    async with opened(database, settings, pubsub_max_outstanding_messages=2) as broker:
        await ready(broker)
        monkeypatch.setattr(broker._client, "pull_now", away)
        recorder, stop = Recorder(), asyncio.Event()
        options = ConsumerOptions(batch_size=10, linger_ms=3000)
        consuming = asyncio.create_task(broker.consume(SUBSCRIPTION, recorder, options=options, stop=stop))
        for number in range(4):
            await broker.publish(TOPIC, [message(number, tenant=str(number))])
            await until(lambda n=number: recorder.numbers == list(range(n + 1)), "the message")  # type: ignore[misc]
        stop.set()
        assert (await asyncio.wait_for(consuming, 20)).done == 4


async def test_what_was_pulled_is_given_back_when_an_error_while_lingering_ends_the_consumer(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forbidden(*_: Any) -> list[Delivery]:
        raise exceptions.PermissionDenied("not yours")

    async with opened(database, settings) as broker, opened(database, settings) as another:
        await ready(broker)
        await broker.publish(TOPIC, [message(1)])
        monkeypatch.setattr(broker._client, "pull_now", forbidden)
        recorder = Recorder()
        with pytest.raises(exceptions.PermissionDenied):
            await broker.consume(SUBSCRIPTION, recorder, options=ConsumerOptions(linger_ms=3000))
        assert recorder.numbers == []
        recorder, _ = await drain(another)
    assert recorder.numbers == [1]


async def test_messages_pulled_but_not_handled_are_given_back_at_a_stop(database: Database, settings: Settings) -> None:
    """With one batch in hand at a time, the second loop holds messages that it has not begun with."""
    stop, entered = asyncio.Event(), asyncio.Event()

    async def hold(_: Batch) -> None:
        entered.set()
        await stop.wait()

    async with opened(database, settings) as broker:
        await ready(broker)
        await broker.publish(TOPIC, [message(n, tenant=str(n)) for n in range(10)])
        consuming = asyncio.create_task(
            broker.consume(SUBSCRIPTION, hold, options=ConsumerOptions(batch_size=3, concurrency=2), stop=stop)
        )
        await asyncio.wait_for(entered.wait(), 20)
        stop.set()
        stats = await asyncio.wait_for(consuming, 20)
        started = time.monotonic()
        recorder, _ = await drain(broker)
    assert stats.done + len(recorder.messages) == 10
    assert time.monotonic() - started < 10  # nobody waited for a lease to end


def not_yet() -> Outcome:
    raise TransientError("not yet")


@pytest.mark.parametrize(
    ("first_time", "handled", "settled"),
    [
        (lambda: DONE, 1, (1, 0, 0)),
        (lambda: Retry(0.05), 2, (1, 1, 0)),
        (lambda: Dead("no good"), 1, (0, 0, 1)),
        (not_yet, 2, (1, 0, 0)),
    ],
)
async def test_a_message_that_comes_twice_in_a_batch_is_handled_once(
    database: Database,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    query: Query,
    first_time: Callable[[], Outcome],
    handled: int,
    settled: tuple[int, int, int],
) -> None:
    async with opened(database, settings) as broker:
        await ready(broker)
        await broker.publish(TOPIC, [message(1)])
        pull_now = broker._client.pull_now

        async def pull_twice(*arguments: Any) -> list[Delivery]:
            first = await pull_now(*arguments)
            if first:
                await broker._client.set_deadline(SUBSCRIPTION, [delivery.ack_id for delivery in first], 0)
            return first + await pull_now(*arguments)

        monkeypatch.setattr(broker._client, "pull_now", pull_twice)
        recorder = Recorder(lambda received: first_time() if received.attempt == 1 else DONE)
        _, stats = await drain(broker, recorder)
    assert recorder.numbers == [1] * handled
    assert (stats.done, stats.retried, stats.dead) == settled
    assert query("SELECT count(*) FROM clientmgr.gateway_deliveries") == [(0,)]


async def test_a_failed_retry_waits_on_and_a_poisoned_one_is_dead_alone(database: Database, settings: Settings) -> None:
    seen: list[tuple[int, int]] = []

    def decide(received: ReceivedMessage) -> Outcome:
        number = number_of(received)
        seen.append((number, received.attempt))
        if received.attempt == 1:
            return Retry(0.05)
        if number == 1 and received.attempt == 2:
            raise TransientError("not yet")
        if number == 2:
            raise PermanentError("never")
        return DONE

    async with opened(database, settings) as broker:
        await ready(broker)
        await broker.publish(TOPIC, messages(range(3)))
        _, stats = await drain(broker, Recorder(decide))
        again, _ = await drain(broker)
    assert (stats.done, stats.dead) == (2, 1)
    assert max(attempt for number, attempt in seen if number == 1) >= 3
    assert again.numbers == []


async def test_waiting_retries_are_told_with_the_lag(database: Database, settings: Settings) -> None:
    async with opened(database, settings) as broker:
        await ready(broker)
        await broker.publish(TOPIC, messages(range(3)))
        await drain(broker, Recorder(lambda _: Retry(3600)))
    async with await database.connect_async(Role.READER, autocommit=True) as connection:
        (lag,) = await subscription_lag(connection, topic=TOPIC, subscription=SUBSCRIPTION)
    assert (lag.waiting, lag.dead) == (3, 0)


async def test_a_retry_publishes_with_its_own_transaction(database: Database, settings: Settings) -> None:
    async with opened(database, settings) as broker:
        await ready(broker)
        await ready(broker, "results", "results-reader")
        await broker.publish(TOPIC, [message(1)])

        async def second_time(batch: Batch) -> list[Outcome]:
            if batch.messages[0].attempt == 1:
                return [Retry(0.05)]
            batch.publish("results", [message(1)])
            return [DONE]

        await broker.consume(SUBSCRIPTION, second_time, burst=True)
        recorder, _ = await drain(broker, subscription="results-reader")
    assert recorder.numbers == [1]


async def test_attempts_are_the_servers_where_it_counts_them(database: Database, settings: Settings) -> None:
    async with opened(database, settings, pubsub_dead_letter_topic="lost") as broker:
        await ready(broker)
        await broker.publish(TOPIC, [message(1)])
        attempts: list[int] = []

        def third_time(received: ReceivedMessage) -> Outcome:
            attempts.append(received.attempt)
            if received.attempt < 3:
                raise TransientError("not yet")
            return DONE

        await drain(broker, Recorder(third_time))
    assert attempts == [1, 2, 3]


async def test_a_server_that_is_away_is_an_error_and_not_a_hang(database: Database, settings: Settings) -> None:
    async with opened(database, settings, pubsub_emulator_host=f"127.0.0.1:{free_port()}") as broker:
        started = time.monotonic()
        with pytest.raises(PubSubUnavailableError):
            await broker.publish(TOPIC, [message(1)])
        with pytest.raises(PubSubUnavailableError):
            await broker.ensure_topic(TOPIC)
        assert time.monotonic() - started < 30


async def test_a_consumer_goes_on_after_the_server_was_away(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    gateway = GatewayProcess(database, tmp_path / "gateway.log")
    own = settings.model_copy(update={"pubsub_emulator_host": gateway.address})
    recorder, stop = Recorder(), asyncio.Event()
    try:
        gateway.start()
        async with PubSubBroker(database, own) as broker:
            await ready(broker)
            consuming = asyncio.create_task(broker.consume(SUBSCRIPTION, recorder, stop=stop))
            await broker.publish(TOPIC, [message(1)])
            await until(lambda: recorder.numbers == [1], "the first message")
            await asyncio.to_thread(gateway.stop)
            await asyncio.to_thread(gateway.start)
            await broker.publish(TOPIC, [message(2)])
            # The first one comes again where the server left before it was acknowledged.
            await until(lambda: set(recorder.numbers) == {1, 2} or consuming.done(), "the second message")
            stop.set()
            await asyncio.wait_for(consuming, 20)
    finally:
        gateway.stop()


async def test_the_name_of_the_keys_attribute_is_taken(database: Database, settings: Settings) -> None:
    async with opened(database, settings) as broker:
        await ready(broker)
        with pytest.raises(InvalidInputError, match="cm-key"):
            await broker.publish(TOPIC, [Message(b"{}", attributes={"cm-key": "x"})])
        with pytest.raises(InvalidInputError, match="beside a key"):
            await broker.publish(TOPIC, [Message(b"{}", key="k", attributes={f"a{n}": "" for n in range(100)})])


async def test_many_messages_are_published_in_several_requests(database: Database, settings: Settings) -> None:
    async with opened(database, settings) as broker:
        await ready(broker)
        await broker.publish(TOPIC, messages(range(1200)))
        big = Message(b'"' + b"x" * 3_000_000 + b'"', tenant="2")
        await broker.publish(TOPIC, [big] * 4)
        recorder, _ = await drain(broker, options=ConsumerOptions(batch_size=1000))
    assert [number_of(got) for got in recorder.messages if got.tenant == "1"] == list(range(1200))
    assert sum(got.tenant == "2" for got in recorder.messages) == 4


async def test_a_handler_that_ends_the_transaction_ends_the_consumer(database: Database, settings: Settings) -> None:
    async def commit(batch: Batch) -> None:
        await batch.connection.execute("COMMIT")

    async with opened(database, settings) as broker:
        await ready(broker)
        await broker.publish(TOPIC, [message(1)])
        with pytest.raises(TransactionEndedError):
            await broker.consume(SUBSCRIPTION, commit, burst=True)
        recorder, _ = await drain(broker)
    assert recorder.numbers == [1]


async def test_a_consumer_that_starts_before_the_server_waits_for_it(database: Database, settings: Settings) -> None:
    port = free_port()
    own = settings.model_copy(update={"pubsub_gateway_port": port, "pubsub_emulator_host": f"127.0.0.1:{port}"})
    recorder, stop = Recorder(), asyncio.Event()
    async with opened(database, settings) as elsewhere:  # the same database, so the same topics
        await ready(elsewhere)
        await elsewhere.publish(TOPIC, [message(1)])
    async with PubSubBroker(database, own, retry_for_s=0.5) as broker:
        consuming = asyncio.create_task(broker.consume(SUBSCRIPTION, recorder, stop=stop))
        await asyncio.sleep(1.0)
        assert not consuming.done()
        async with Gateway(own, database):
            await until(lambda: recorder.numbers == [1], "the message")
            stop.set()
            await asyncio.wait_for(consuming, 20)
