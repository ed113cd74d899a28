"""Appending to the log: offsets, partitions, transaction groups, shared commits, publishers that abort or hang."""

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import InvalidInputError
from clientmgr.base.settings import load_settings
from clientmgr.broker.interface import Message
from clientmgr.broker.message_checks import check_messages
from clientmgr.broker.postgres.publish import UnknownTopicError, append, append_to_topics, append_transactions
from clientmgr.broker.postgres.transport import PostgresBroker
from tests.broker.recording import TOPIC, drain, message, messages, ready

pytestmark = pytest.mark.anyio

Query = Callable[..., list[tuple[Any, ...]]]

# hashtext() of this is the smallest integer, whose abs() does not exist.
OVERFLOWING_HOST_ID = "00000000-0000-4000-8000-0001456ed970"
GROUPS = """
    SELECT array_agg(c_offset ORDER BY c_offset), array_agg(DISTINCT tx_last_offset)
    FROM clientmgr.outbox_message_t GROUP BY transaction_id ORDER BY 1
"""


async def test_the_smallest_hash_has_a_partition_like_any_other(log_broker: PostgresBroker, query: Query) -> None:
    assert query("SELECT hashtext(%s)", OVERFLOWING_HOST_ID) == [(-(2**31),)]
    await ready(log_broker)
    await log_broker.publish(TOPIC, [message(1, tenant=OVERFLOWING_HOST_ID), message(2, tenant="other")])
    await log_broker.publish(TOPIC, messages(range(3, 500), tenant=OVERFLOWING_HOST_ID))
    recorder, _ = await drain(log_broker)
    assert sorted(recorder.numbers) == list(range(1, 500))


def test_partitions_are_those_of_the_specification(query: Query) -> None:
    assert query("""
        SELECT count(*) FROM generate_series(1, 10000) AS host
        WHERE clientmgr.partition_of(host::text, 16) <> abs(hashtext(host::text)) % 16
    """) == [(0,)]


async def test_offsets_begin_at_1_and_come_back_in_the_messages_order(database: Database) -> None:
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        assert await append_transactions(connection, "outbox", [messages(range(3))]) == range(1, 4)
        assert await append_transactions(connection, "outbox", [messages(range(1000))]) == range(4, 1004)
        assert await append_transactions(connection, "outbox", []) == range(0)


@pytest.mark.parametrize("group_id", [None, "readers"])
@pytest.mark.parametrize("count", [3, 1000], ids=["insert", "copy"])
async def test_all_ways_of_appending_store_the_same(
    database: Database, query: Query, count: int, group_id: str | None
) -> None:
    published = [
        Message(
            b'{"n": %d}' % n, tenant=f"t{n * 7 // count}", key=f"ü{n}", attributes={"n": f'"{n}\\'} if n % 2 else {}
        )
        for n in range(count)
    ]
    ((before,),) = query("SELECT clock_timestamp()")
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        await append(connection, "outbox", published, group_id=group_id)
    rows = query(
        """
        SELECT payload, host_id, user_id, attributes, c_offset,
            tx_last_offset = max(c_offset) OVER (PARTITION BY host_id, transaction_id),
            partition_id = clientmgr.partition_of(host_id, 16), attempts, group_id,
            published_at BETWEEN %s AND clock_timestamp()
        FROM clientmgr.outbox_message_t ORDER BY c_offset
        """,
        before,
    )
    assert rows == [
        (each.data, each.tenant, each.key, dict(each.attributes), n + 1, True, True, 0, group_id, True)
        for n, each in enumerate(published)
    ]


async def test_publishers_that_abort_leave_no_gap(log_broker: PostgresBroker, database: Database, query: Query) -> None:
    await ready(log_broker)

    async def publish_some(publisher: int) -> None:
        async with await database.connect_async(Role.WRITER) as connection:
            for round_number in range(10):
                await append(connection, TOPIC, messages(range(1 + (publisher + round_number) % 4)))
                await (connection.rollback() if (publisher + round_number) % 3 == 0 else connection.commit())

    await asyncio.gather(*(publish_some(publisher) for publisher in range(4)))
    [(count, lowest, highest, counter)] = query(
        """
        SELECT count(*), min(c_offset), max(c_offset), (SELECT next_offset FROM clientmgr.log_counter WHERE topic = %s)
        FROM clientmgr.outbox_message_t
    """,
        TOPIC,
    )
    assert (lowest, highest, counter) == (1, count, count + 1)


@pytest.mark.parametrize("size", [1, 200], ids=["insert", "copy"])
async def test_groups_appended_together_stay_apart(database: Database, query: Query, size: int) -> None:
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        await append_transactions(connection, "outbox", [messages(range(size)), [], messages(range(size * 2))])
    assert query(GROUPS) == [
        (list(range(1, size + 1)), [size]),
        (list(range(size + 1, 3 * size + 1)), [3 * size]),
    ]


async def test_two_who_publish_to_several_topics_never_wait_for_each_other(
    log_broker: PostgresBroker, database: Database
) -> None:
    for topic in ("topic-a", "topic-b"):
        await log_broker.ensure_topic(topic)

    async def publish(first: str, second: str) -> None:
        async with await database.connect_async(Role.WRITER) as connection:
            for _ in range(25):
                await append_to_topics(connection, {first: messages(range(2)), second: messages(range(2))})
                await connection.commit()

    await asyncio.gather(publish("topic-a", "topic-b"), publish("topic-b", "topic-a"))


async def test_single_publishers_share_commits_and_keep_their_own_groups(
    log_broker: PostgresBroker, query: Query
) -> None:
    await ready(log_broker)
    await asyncio.gather(*(log_broker.publish(TOPIC, messages(range(n, n + 2))) for n in range(0, 100, 2)))
    groups, transactions = query(
        "SELECT count(DISTINCT transaction_id), count(DISTINCT xmin::text) FROM clientmgr.outbox_message_t"
    )[0]
    assert groups == 50
    assert transactions < 10


async def test_a_publisher_who_errs_does_not_fail_those_who_share_its_commit(log_broker: PostgresBroker) -> None:
    await ready(log_broker)
    results = await asyncio.gather(
        *(log_broker.publish(TOPIC, [message(n)]) for n in range(5)),
        log_broker.publish("no-such-topic", [message(5)]),
        *(log_broker.publish(TOPIC, [message(n)]) for n in range(6, 10)),
        return_exceptions=True,
    )
    assert [type(result) for result in results if result is not None] == [UnknownTopicError]
    recorder, _ = await drain(log_broker)
    assert sorted(recorder.numbers) == [0, 1, 2, 3, 4, 6, 7, 8, 9]


async def test_messages_published_with_a_connection_share_its_fate(
    log_broker: PostgresBroker, database: Database
) -> None:
    await ready(log_broker)
    async with await database.connect_async(Role.WRITER) as connection:
        await log_broker.publish(TOPIC, [message(1)], connection=connection)
        await connection.rollback()
        await log_broker.publish(TOPIC, [message(2)], connection=connection)
        await connection.commit()
    recorder, _ = await drain(log_broker)
    assert recorder.numbers == [2]


async def test_whoever_appends_at_once_and_hangs_is_cut_off(database: Database) -> None:
    async with PostgresBroker(database, load_settings(database_url=database.url)) as broker:
        await ready(broker)
        async with await database.connect_async(Role.WRITER) as hanging:
            await append(hanging, TOPIC, [message(1)], cut_off_ms=200)
            await asyncio.wait_for(broker.publish(TOPIC, [message(2)]), 20.0)
            with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
                await hanging.commit()
        recorder, _ = await drain(broker)
        assert recorder.numbers == [2]


async def test_publishing_goes_on_at_once_after_the_server_ended_the_connection(
    log_broker: PostgresBroker, query: Query
) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, [message(1)])
    query("""
        SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
    """)
    await log_broker.publish(TOPIC, [message(2)])
    recorder, _ = await drain(log_broker)
    assert recorder.numbers == [1, 2]


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (Message(b"1", tenant="a\0b"), "tenant"),
        (Message(b"1", key="\ud800"), "key"),
        (Message(b"1", tenant="x" * 2000), "tenant"),
        (Message(b"1", attributes={"a": "x" * 2000}), "attributes.a"),
    ],
)
async def test_what_the_log_can_not_hold_is_refused_by_name(
    log_broker: PostgresBroker, bad: Message, field: str
) -> None:
    await ready(log_broker)
    with pytest.raises(InvalidInputError, match=f"^{field}: "):
        await log_broker.publish(TOPIC, [bad])


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (Message(b"1", tenant="a\0b"), "tenant"),
        (Message(b"1", key="a\0b"), "key"),
        (Message(b"1", key="\ud800"), "key"),
        (Message(b"1", key="x" * 1025), "key"),
        (Message(b"1", key="ü" * 513), "key"),
        (Message(b'"' + b"x" * 100 + b'"'), "data"),
        (Message(b"1", attributes={"": "x"}), "attributes"),
    ],
)
def test_one_bad_message_among_many_is_found_where_nobody_looks_at_their_json(bad: Message, field: str) -> None:
    good = [Message(b"1", "t1", "x" * 1024), Message(b"2", "t2", "ü" * 512), Message(b"3")]
    for harmless in (good[:1], good, []):
        check_messages(TOPIC, harmless, 100, encoded_here=True)
    with pytest.raises(InvalidInputError, match=f"^{field}: "):
        check_messages(TOPIC, [good[0], bad, good[1]], 100, encoded_here=True)


async def test_a_payload_of_several_megabytes_passes(log_broker: PostgresBroker) -> None:
    await ready(log_broker)
    large = Message(b'"' + b"x" * 8_000_000 + b'"')
    await log_broker.publish(TOPIC, [large, large])
    recorder, _ = await drain(log_broker, options=None)
    assert [received.data for received in recorder.messages] == [large.data, large.data]
