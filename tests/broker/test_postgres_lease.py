"""A consumer that freezes with a batch in hand loses it after its lease, and can commit nothing of it any more."""

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from typing import Any

import pytest

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings, load_settings
from clientmgr.broker.interface import Batch
from clientmgr.broker.postgres.transport import PostgresBroker
from tests.broker.recording import SUBSCRIPTION, TOPIC, message, messages, number_of, ready, until

pytestmark = pytest.mark.anyio

Query = Callable[..., list[tuple[Any, ...]]]

LEASE_S = 2.0
INSERT = "INSERT INTO handled (n, worker) VALUES (%s, %s)"


def consume(url: str, worker: str, in_hand: Event) -> None:
    """A process that consumes for ever. "frozen" takes long over message 0, without the database."""

    async def handle(batch: Batch) -> None:
        for received in batch.messages:
            await batch.connection.execute(INSERT, (number_of(received), worker))
        if worker == "frozen" and number_of(batch.messages[0]) == 0:
            in_hand.set()
            await asyncio.sleep(4 * LEASE_S)

    async def run() -> None:
        settings = load_settings(database_url=url, broker_lease_s=LEASE_S)
        async with PostgresBroker(Database(url, application_name=worker), settings) as broker:
            await broker.consume(SUBSCRIPTION, handle)

    asyncio.run(run())


@pytest.fixture
def handled(query: Query) -> Query:
    query("""
        CREATE TABLE handled (id bigint GENERATED ALWAYS AS IDENTITY, n integer, worker text);
        GRANT SELECT, INSERT ON handled TO clientmgr_writer
    """)
    return query


async def test_a_frozen_consumer_is_relieved_within_its_lease_and_goes_on_when_it_wakes(
    log_broker: PostgresBroker, database: Database, handled: Query
) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, messages(range(5)))
    context = multiprocessing.get_context("spawn")
    in_hand = context.Event()
    workers = [
        context.Process(target=consume, args=(database.url, worker, in_hand), daemon=True)
        for worker in ("frozen", "other")
    ]
    try:
        workers[0].start()
        await until(in_hand.is_set, "a batch in hand", 60)
        os.kill(workers[0].pid or 0, signal.SIGSTOP)
        stopped = time.monotonic()
        workers[1].start()
        await until(lambda: handled("SELECT count(*) FROM handled") == [(5,)], "the other", 60)
        assert handled("SELECT array_agg(n ORDER BY id), min(worker), max(worker) FROM handled") == [
            ([0, 1, 2, 3, 4], "other", "other")
        ]
        assert time.monotonic() - stopped >= LEASE_S / 2, "the lease was not even there"
        os.kill(workers[0].pid or 0, signal.SIGCONT)
        workers[1].kill()
        workers[1].join()
        await log_broker.publish(TOPIC, [message(5)])
        await until(lambda: handled("SELECT worker FROM handled WHERE n = 5") == [("frozen",)], "it to go on", 60)
        assert handled("SELECT array_agg(n ORDER BY id) FROM handled") == [([0, 1, 2, 3, 4, 5],)]
    finally:
        for worker in workers:
            if worker.pid is not None:
                worker.kill()
                worker.join()


async def test_a_handler_that_waits_for_longer_than_its_lease_is_left_alone(
    database: Database, settings_for: Callable[[Database], Settings], query: Query
) -> None:
    settings = settings_for(database).model_copy(update={"broker_lease_s": 1.0})
    attempts: list[int] = []

    async def patient(batch: Batch) -> None:
        attempts.extend(received.attempt for received in batch.messages)
        await asyncio.sleep(3.0)

    async with PostgresBroker(database, settings) as broker:
        await ready(broker)
        await broker.publish(TOPIC, [message(1)])
        assert (await broker.consume(SUBSCRIPTION, patient, burst=True)).done == 1
    assert attempts == [1]
