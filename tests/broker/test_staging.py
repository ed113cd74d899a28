"""Publishing in a caller's transaction: nothing is locked before its COMMIT, and tenants never share a group."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel
from psycopg.conninfo import conninfo_to_dict

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import InvalidInputError
from clientmgr.base.settings import Settings
from clientmgr.broker.gateway.server import Gateway
from clientmgr.broker.interface import DONE, Batch, ConsumerOptions, Message, Outcome
from clientmgr.broker.postgres import publish
from clientmgr.broker.postgres.lag import subscription_lag
from clientmgr.broker.postgres.publish import (
    PublishRefusedError,
    UnknownTopicError,
    append_transactions,
    in_lock_order,
    stage,
)
from clientmgr.broker.postgres.retention import forget_keys
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.broker.pubsub import wire
from clientmgr.contracts.topics import SHARED
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from tests.broker.recording import SUBSCRIPTION, TOPIC, Recorder, drain, message, messages, number_of, ready, until

pytestmark = pytest.mark.anyio

Query = Callable[..., list[tuple[Any, ...]]]

GROUPS = """
    SELECT topic, host_id, array_agg(c_offset ORDER BY c_offset), array_agg(DISTINCT tx_last_offset)
    FROM clientmgr.outbox_message_t JOIN clientmgr.log_counter ON id = topic_id
    GROUP BY topic, transaction_id, host_id ORDER BY 1, 3
"""
HELD_FOR_S = 20.0
"""Nothing here waits: this only ends a test that would hang."""


async def test_an_idle_transaction_and_a_long_query_hold_nobody(log_broker: PostgresBroker, database: Database) -> None:
    await ready(log_broker)
    async with await database.connect_async(Role.WRITER) as idle, await database.connect_async(Role.WRITER) as busy:
        for connection in (idle, busy):
            await asyncio.wait_for(log_broker.publish(TOPIC, [message(1)], connection=connection), HELD_FOR_S)
        query = asyncio.create_task(busy.execute("SELECT pg_sleep(60)"))
        await asyncio.wait_for(log_broker.publish(TOPIC, [message(2)]), HELD_FOR_S)
        recorder, _ = await drain(log_broker)
        assert recorder.numbers == [2]
        await idle.commit()
        busy.cancel()
        with pytest.raises(psycopg.errors.QueryCanceled):
            await query
    recorder, _ = await drain(log_broker)
    assert recorder.numbers == [1]


async def test_two_topics_in_opposite_order_never_deadlock(log_broker: PostgresBroker, database: Database) -> None:
    topics = ["topic-a", "topic-b"]
    for topic in topics:
        await log_broker.ensure_topic(topic)

    async def publish_some(order: list[str]) -> None:
        async with await database.connect_async(Role.WRITER) as connection:
            for _ in range(15):
                for topic in order:
                    await log_broker.publish(topic, messages(range(2)), connection=connection)
                    await asyncio.sleep(0)
                await connection.commit()

    await asyncio.gather(publish_some(topics), publish_some(topics[::-1]))


async def test_all_that_a_transaction_publishes_for_a_tenant_is_one_group(
    log_broker: PostgresBroker, database: Database, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "STAGE_MAX_MESSAGES", 3)
    await log_broker.ensure_topic("another")
    async with await database.connect_async(Role.WRITER) as connection:
        await stage(connection, "outbox", [message(1, tenant="b"), message(2, tenant="a"), message(3, tenant="b")])
        await stage(connection, "another", [message(4, tenant="b")])
        await stage(connection, "outbox", messages(range(5, 9), tenant="a"))
        await connection.commit()
        await stage(connection, "outbox", [message(9, tenant="a")])
        await connection.commit()
    assert query(GROUPS) == [
        ("another", "b", [1], [1]),
        ("outbox", "a", [1, 2, 3, 4, 5], [5]),
        ("outbox", "b", [6, 7], [7]),
        ("outbox", "a", [8], [8]),
    ]
    numbers = query("SELECT user_id FROM clientmgr.outbox_message_t WHERE topic_id = 1 ORDER BY c_offset")
    assert numbers == [(f"key-{n}",) for n in (2, 5, 6, 7, 8, 1, 3, 9)]
    assert query("SELECT count(*) FROM clientmgr.pending_publish_t") == [(0,)]


async def test_what_is_rolled_back_is_not_published(database: Database, query: Query) -> None:
    async with await database.connect_async(Role.WRITER) as connection:
        await stage(connection, "outbox", [message(1)])
        async with connection.transaction(force_rollback=True):
            await stage(connection, "outbox", [message(2)])
        async with connection.transaction():
            await stage(connection, "outbox", [message(3)])
        await connection.commit()
        await stage(connection, "outbox", [message(4)])
        await connection.rollback()
        async with connection.transaction(force_rollback=True):
            await stage(connection, "outbox", [message(5)])
            # As whoever looks whether a deferred constraint would fail does.
            await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            await stage(connection, "outbox", [message(6)])
        await stage(connection, "outbox", [message(7)])
        await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        await stage(connection, "outbox", [message(8)])
        await connection.commit()
    assert query("SELECT user_id, c_offset FROM clientmgr.outbox_message_t ORDER BY c_offset") == [
        (f"key-{n}", offset) for offset, n in enumerate((1, 3, 7, 8), start=1)
    ]


async def test_a_call_in_many_portions_is_all_or_nothing_in_autocommit_mode(
    database: Database, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "STAGE_MAX_MESSAGES", 2)
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        await stage(connection, "outbox", messages(range(5)))
    assert query(GROUPS) == [("outbox", "1", [1, 2, 3, 4, 5], [5])]


@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
async def test_other_isolation_levels_are_refused_at_once(database: Database, level: IsolationLevel) -> None:
    async with await database.connect_async(Role.WRITER) as connection:
        await connection.set_isolation_level(level)
        for refused in (
            stage(connection, "outbox", [message(1)]),
            append_transactions(connection, "outbox", [[message(1)]]),
        ):
            with pytest.raises(PublishRefusedError, match=r"READ COMMITTED.*transaction of its own"):
                await refused
            await connection.rollback()


@pytest.mark.parametrize(("own_limit", "limit"), [("0", "30s"), ("1min", "30s"), ("2s", "2s")])
async def test_who_appends_before_the_commit_is_cut_off_when_idle(
    log_broker: PostgresBroker, database: Database, own_limit: str, limit: str
) -> None:
    await ready(log_broker)
    async with await database.connect_async(Role.WRITER) as connection:
        await connection.execute(f"SET idle_in_transaction_session_timeout = '{own_limit}'".encode())
        await connection.commit()
        await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        await stage(connection, TOPIC, [message(1)])
        cursor = await connection.execute("SHOW idle_in_transaction_session_timeout")
        assert await cursor.fetchone() == (limit,)
        await connection.commit()
        cursor = await connection.execute("SHOW idle_in_transaction_session_timeout")
        assert await cursor.fetchone() != ("30s",)


async def test_a_session_without_triggers_of_its_own_publishes_all_the_same(
    log_broker: PostgresBroker, database: Database, postgres_server: EmbeddedPostgres
) -> None:
    await ready(log_broker)
    name = conninfo_to_dict(database.url)["dbname"]
    async with await psycopg.AsyncConnection.connect(postgres_server.superuser_url(str(name))) as connection:
        await connection.execute("SET session_replication_role = replica")
        await stage(connection, TOPIC, [message(1)])
    assert (await drain(log_broker))[0].numbers == [1]


async def test_an_unknown_topic_is_named_at_the_call(database: Database) -> None:
    async with await database.connect_async(Role.WRITER) as connection:
        with pytest.raises(UnknownTopicError, match="no-such-topic"):
            await stage(connection, "no-such-topic", [message(1)])


async def test_who_asks_for_one_group_across_tenants_is_refused_by_their_names(database: Database) -> None:
    async with await database.connect_async(Role.WRITER) as connection:
        with pytest.raises(InvalidInputError, match=r"one tenant for topic outbox.*'7', '8'"):
            await append_transactions(connection, "outbox", [[message(1, tenant="8"), message(2, tenant="7")]])


@pytest.mark.parametrize("way", ["with a transaction", "by itself", "by a handler"])
async def test_a_failing_message_takes_nobody_of_another_tenant_along(
    log_broker: PostgresBroker, database: Database, query: Query, way: str
) -> None:
    await ready(log_broker)
    await ready(log_broker, "triggers", "triggers-reader")
    # Two of one partition, and one of another.
    found = query("SELECT n::text FROM generate_series(1, 300) AS n ORDER BY clientmgr.partition_of(n::text, 16), n")
    tenants = [found[0][0], found[1][0], found[-1][0]]
    published = [message(n, tenant=tenants[n % 3]) for n in range(7)]
    if way == "with a transaction":
        async with await database.connect_async(Role.WRITER) as connection:
            for one in published:
                await log_broker.publish(TOPIC, [one], connection=connection)
            await connection.commit()
    elif way == "by itself":
        await log_broker.publish(TOPIC, published)
    else:

        async def handler(batch: Batch) -> None:
            batch.publish(TOPIC, published)

        await log_broker.publish("triggers", [message(0)])
        await log_broker.consume("triggers-reader", handler, burst=True)

    def decide(received: Any) -> Outcome:
        if number_of(received) == 4:  # of the tenant that 1 is of
            raise ValueError("poison")
        return DONE

    await drain(log_broker, Recorder(decide), SUBSCRIPTION, ConsumerOptions(max_attempts=1))
    dead = query("SELECT user_id FROM clientmgr.dead_letter_queue ORDER BY user_id")
    assert dead == [("key-1",), ("key-4",)]


async def test_sql_and_python_lock_topics_in_the_same_order(log_broker: PostgresBroker, query: Query) -> None:
    topics = sorted([*SHARED, "Zebra", "zebra", "b-topic", "a.topic", "a-topic", "~tilde"], reverse=True)
    ordered = query('SELECT t FROM unnest(%s::text[]) AS t ORDER BY clientmgr.is_locked_last(t), t COLLATE "C"', topics)
    assert [topic for (topic,) in ordered] == in_lock_order(topics)


async def test_a_dedup_key_is_taken_once_by_topic_however_it_comes(
    log_broker: PostgresBroker, database: Database, query: Query
) -> None:
    await ready(log_broker)
    await log_broker.ensure_topic("another")

    def keyed(number: int, key: str) -> Message:
        return Message(b'{"n": %d}' % number, tenant="1", dedup_key=key)

    await log_broker.publish(TOPIC, [keyed(1, "a"), keyed(2, "a"), keyed(3, "b"), message(4)])
    await log_broker.publish(TOPIC, [keyed(5, "b")])
    await log_broker.publish("another", [keyed(6, "b")])
    async with await database.connect_async(Role.WRITER) as connection:
        await log_broker.publish(TOPIC, [keyed(7, "a"), keyed(8, "c")], connection=connection)
        await log_broker.publish(TOPIC, [keyed(9, "c")], connection=connection)
        await connection.commit()
        await log_broker.publish(TOPIC, [keyed(10, "d")], connection=connection)
        await connection.rollback()
    await log_broker.publish(TOPIC, [keyed(11, "d")])
    recorder, _ = await drain(log_broker)
    assert recorder.numbers == [1, 3, 4, 8, 11]
    assert query("SELECT count(*) FROM clientmgr.publish_keys WHERE digest = sha256('a')") == [(1,)]


async def test_of_many_who_publish_the_same_keys_at_once_one_wins_each_and_nobody_fails(
    log_broker: PostgresBroker, database: Database
) -> None:
    await ready(log_broker)

    async def publish_all(who: int) -> None:
        async with await database.connect_async(Role.WRITER) as connection:
            keys = list(range(10)) if who % 2 else list(range(9, -1, -1))
            for key in keys:
                one = Message(b'{"n": %d}' % key, tenant=str(who), dedup_key=f"k{key}")
                await log_broker.publish(TOPIC, [one], connection=connection)
            await connection.commit()

    shared = [Message(b'{"n": %d}' % key, tenant="x", dedup_key=f"k{key}") for key in range(5)]
    await asyncio.gather(*map(publish_all, range(4)), *(log_broker.publish(TOPIC, [one]) for one in shared))
    recorder, _ = await drain(log_broker)
    assert sorted(recorder.numbers) == list(range(10))


async def test_a_duplicate_fails_nobody_who_shares_its_commit(log_broker: PostgresBroker) -> None:
    await ready(log_broker)
    twice = Message(b'{"n": 0}', tenant="1", dedup_key="once")
    await asyncio.gather(
        *(log_broker.publish(TOPIC, [one]) for one in [message(1), twice, message(2), twice, message(3), twice])
    )
    recorder, _ = await drain(log_broker)
    assert sorted(recorder.numbers) == [0, 1, 2, 3]


async def test_a_message_for_later_comes_when_its_time_has_come_in_the_order_of_the_times(
    log_broker: PostgresBroker, database: Database, query: Query
) -> None:
    await ready(log_broker)
    await ready(log_broker, subscription="second-reader")
    now = datetime.now(UTC)

    def later(number: int, delay: timedelta) -> Message:
        return Message(b'{"n": %d}' % number, tenant="1", deliver_at=now + delay)

    hour, past = timedelta(hours=1), timedelta(seconds=-1)
    await log_broker.publish(TOPIC, [later(1, 3 * hour), later(2, 2 * hour), later(3, past), message(4)])
    async with await database.connect_async(Role.WRITER) as connection:
        await log_broker.publish(TOPIC, [later(5, hour)], connection=connection)
        await log_broker.publish(TOPIC, [later(6, hour)], connection=connection)
        await connection.commit()
        await log_broker.publish(TOPIC, [later(7, hour)], connection=connection)
        await connection.rollback()
    recorder, _ = await drain(log_broker)
    assert recorder.numbers == [3, 4]
    query("UPDATE clientmgr.delayed_message_t SET not_before = not_before - interval '150 minutes'")
    recorder, _ = await drain(log_broker)
    assert recorder.numbers == [5, 6, 2]
    other, _ = await drain(log_broker, subscription="second-reader")
    assert other.numbers == [3, 4, 5, 6, 2]
    assert query("SELECT count(*) FROM clientmgr.delayed_message_t") == [(1,)]


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (Message(b"1", deliver_at=datetime.now(UTC) + timedelta(days=400)), "deliver_at"),
        (Message(b"1", deliver_at=datetime.now(UTC).replace(tzinfo=None)), "deliver_at"),
        (Message(b"1", dedup_key=""), "dedup_key"),
        (Message(b"1", dedup_key="x" * 1025), "dedup_key"),
        (Message(b"1", dedup_key="a\0b"), "dedup_key"),
    ],
)
async def test_times_and_keys_are_checked_by_name(log_broker: PostgresBroker, bad: Message, field: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^{field}: "):
        await log_broker.publish("outbox", [bad])


def test_pubsub_refuses_what_only_the_log_can_do_by_name() -> None:
    for bad, field in (
        (Message(b"1", dedup_key="x"), "dedup_key"),
        (Message(b"1", deliver_at=datetime.now(UTC)), "deliver_at"),
    ):
        with pytest.raises(InvalidInputError, match=rf"^{field}: .*only the PostgreSQL log"):
            wire.check(TOPIC, bad, 100)


async def test_the_gateway_appends_what_is_due_where_nobody_else_reads(
    log_broker: PostgresBroker, database: Database, settings_for: Callable[[Database], Settings], query: Query
) -> None:
    await log_broker.ensure_topic(TOPIC)
    soon = datetime.now(UTC) + timedelta(seconds=1)
    await log_broker.publish(TOPIC, [Message(b"1", tenant="1", deliver_at=soon)])
    async with await database.connect_async(Role.READER) as connection:
        (lag,) = await subscription_lag(connection)
    assert (lag.topic, lag.subscription, lag.waiting) == (TOPIC, "(published for later)", 1)
    async with Gateway(settings_for(database).model_copy(update={"pubsub_gateway_port": 0}), database):
        count = "SELECT count(*) FROM clientmgr.outbox_message_t"
        await until(lambda: query(count) == [(1,)], "the gateway to append it")


async def test_old_keys_are_forgotten_with_the_logs_retention(
    log_broker: PostgresBroker, database: Database, query: Query
) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, [Message(b"1", dedup_key=key) for key in ("old", "new")])
    query("UPDATE clientmgr.publish_keys SET published_at = now() - interval '2 hours' WHERE digest = sha256('old')")
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        assert await forget_keys(connection, retention_hours=1.0) == 1
    assert query("SELECT digest = sha256('new') FROM clientmgr.publish_keys") == [(True,)]
