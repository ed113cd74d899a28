"""Servers that crash, backends that are ended under a consumer's hands: it carries on, and each message counts once."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clientmgr.base.database import Database, Role
from clientmgr.base.settings import load_settings
from clientmgr.broker.interface import Batch, ConsumerOptions
from clientmgr.broker.postgres import consumer
from clientmgr.broker.postgres.claim import send_claim
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from clientmgr.operations.migrations import migrate_database
from tests.broker.recording import SUBSCRIPTION, TOPIC, Recorder, drain, message, number_of, ready, until
from tests.conftest import TEST_TUNING

pytestmark = [pytest.mark.anyio, pytest.mark.server]

Query = Callable[..., list[tuple[Any, ...]]]
COUNT = 200
WRITTEN = "CREATE TABLE written (n integer); GRANT SELECT, INSERT ON written TO clientmgr_writer"


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    """A server of the test's own, to be crashed."""
    server = EmbeddedPostgres(tmp_path / "postgres", tuning=TEST_TUNING)
    server.start()
    migrate_database(Database(server.url()))
    yield server
    server.stop()


async def insert_slowly(batch: Batch) -> None:
    for received in batch.messages:
        await batch.connection.execute("INSERT INTO written VALUES (%s)", (number_of(received),))
    await asyncio.sleep(0.005)


def everything_written(query: Query) -> bool:
    [(total, distinct)] = query("SELECT count(*), count(DISTINCT n) FROM written")
    assert total == distinct
    return bool(total == COUNT)


async def publish_everything(broker: PostgresBroker) -> None:
    await asyncio.gather(*(broker.publish(TOPIC, [message(n, tenant=str(n % 20))]) for n in range(COUNT)))


async def test_a_consumer_survives_a_crash_of_the_server(own_server: EmbeddedPostgres) -> None:
    database = Database(own_server.url())

    def query(sql: str) -> list[tuple[Any, ...]]:
        with database.connect(Role.OWNER, autocommit=True) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    query(WRITTEN)
    async with PostgresBroker(database, load_settings(database_url=database.url)) as broker:
        await ready(broker)
        await publish_everything(broker)
        stop = asyncio.Event()
        options = ConsumerOptions(batch_size=2, concurrency=2)
        consuming = asyncio.create_task(broker.consume(SUBSCRIPTION, insert_slowly, options=options, stop=stop))
        await until(lambda: query("SELECT count(*) > 20 FROM written") == [(True,)], "work to be under way")
        await asyncio.to_thread(own_server.crash)
        await asyncio.sleep(0.2)
        await asyncio.to_thread(own_server.restart_on_same_port)
        await until(lambda: everything_written(query), "the rest of the messages", 60)
        # The wake-ups are back as well, and so is publishing.
        await broker.publish(TOPIC, [message(COUNT)])
        await until(lambda: query("SELECT count(*) FROM written") == [(COUNT + 1,)], "a new message", 60)
        stop.set()
        await asyncio.wait_for(consuming, 20)
    assert query("SELECT count(*) FROM clientmgr.dead_letter_queue") == [(0,)]


async def test_a_consumer_survives_backends_that_are_ended(log_broker: PostgresBroker, query: Query) -> None:
    query(WRITTEN)
    await ready(log_broker)
    await publish_everything(log_broker)
    stop = asyncio.Event()
    options = ConsumerOptions(batch_size=2, concurrency=2)
    consuming = asyncio.create_task(log_broker.consume(SUBSCRIPTION, insert_slowly, options=options, stop=stop))
    for _ in range(5):
        await asyncio.sleep(0.03)
        query("""
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
        """)
    await until(lambda: everything_written(query), "the rest of the messages", 60)
    stop.set()
    await asyncio.wait_for(consuming, 20)
    assert query("SELECT count(*) FROM clientmgr.dead_letter_queue") == [(0,)]


async def test_an_idle_consumer_soon_takes_over_what_another_died_with(
    log_broker: PostgresBroker, database: Database, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready(log_broker)
    looks: list[float] = []

    async def noted(*arguments: Any, **options: Any) -> Any:
        cursor = await send_claim(*arguments, **options)
        looks.append(time.monotonic())
        return cursor

    monkeypatch.setattr(consumer, "send_claim", noted)
    stop, recorder = asyncio.Event(), Recorder()
    options = ConsumerOptions(wait_period_ms=50, concurrency=4)
    consuming = asyncio.create_task(log_broker.consume(SUBSCRIPTION, recorder, options=options, stop=stop))
    await log_broker.wakeups.wait_until_listening()
    for _ in range(10):  # Each is a look of every loop that finds nothing: the next one would be after 20 seconds.
        looks.clear()
        query("SELECT pg_notify('event_channel', 'due ' || id) FROM clientmgr.log_counter WHERE topic = %s", TOPIC)
        await until(lambda: len(looks) >= 4, "a look of each loop")
    with database.connect(Role.WRITER) as other:
        other.execute("SELECT FROM clientmgr.consumer_offsets WHERE group_id = %s FOR NO KEY UPDATE", (SUBSCRIPTION,))
        looks.clear()
        await log_broker.publish(TOPIC, [message(1)])
        await until(lambda: bool(looks), "a look that comes too late")
        other.close()  # as of a process that dies: nothing is committed, and nobody is notified
    await until(lambda: recorder.numbers == [1], "the message", 5)
    stop.set()
    await asyncio.wait_for(consuming, 20)


async def test_a_consumer_that_starts_before_its_server_waits_for_it(own_server: EmbeddedPostgres) -> None:
    database = Database(own_server.url())
    async with PostgresBroker(database, load_settings(database_url=database.url)) as broker:
        await ready(broker)
        await broker.publish(TOPIC, [message(1)])
        await asyncio.to_thread(own_server.crash)
        draining = asyncio.create_task(drain(broker))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(own_server.restart_on_same_port)
        recorder, _ = await asyncio.wait_for(draining, 60)
    assert recorder.numbers == [1]
