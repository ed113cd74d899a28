"""Our log as a worker program: publish, consume and latency on `PostgresBroker`, as a daemon would use it."""

import asyncio
import json
import time

import uvloop

from bench.peers.broker.workload import (
    HANDLED_TABLE,
    INSERT_MANY,
    INSERT_ROW,
    QUEUE,
    Report,
    Stopwatch,
    Task,
    body,
    run_program,
    shares,
)
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import load_settings
from clientmgr.broker.interface import Batch, ConsumerOptions, Message
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.operations.migrations import migrate_database


def open_broker(task: Task) -> PostgresBroker:
    settings = load_settings(database_url=task.url, broker_total_partitions=task.workers, log_level="error")
    return PostgresBroker(Database(task.url), settings)


def message(number: int) -> Message:
    content = body(number)
    return Message(json.dumps(content).encode(), tenant=str(content["customerId"]))


async def prepare(task: Task) -> None:
    database = Database(task.url)
    migrate_database(database)
    with database.connect(Role.OWNER) as connection:
        connection.execute(HANDLED_TABLE)
        connection.execute("GRANT ALL ON handled TO clientmgr_writer")
    async with open_broker(task) as broker:
        await broker.ensure_topic(QUEUE)
        await broker.ensure_subscription(QUEUE, QUEUE)


async def publish(task: Task) -> Report:
    async def publisher(batches: list[range]) -> None:
        for batch in batches:
            await broker.publish(QUEUE, [message(number) for number in batch])

    async with open_broker(task) as broker:
        watch = Stopwatch()
        await asyncio.gather(*map(publisher, shares(task.messages, task.workers, task.batch)))
        return watch.report()


async def consume(task: Task) -> Report:
    async def a_row_at_a_time(batch: Batch) -> None:
        for received in batch.messages:
            await batch.connection.execute(INSERT_ROW, (json.loads(received.data)["n"], received.data.decode()))

    async def in_bulk(batch: Batch) -> None:
        numbers = [json.loads(received.data)["n"] for received in batch.messages]
        await batch.connection.execute(INSERT_MANY, (numbers, [received.data.decode() for received in batch.messages]))

    options = ConsumerOptions(batch_size=task.batch, concurrency=task.workers)
    async with open_broker(task) as broker:
        watch = Stopwatch()
        await broker.consume(QUEUE, in_bulk if task.bulk else a_row_at_a_time, options=options, burst=True)
        return watch.report()


async def latency(task: Task) -> Report:
    latencies: list[float] = []
    warm, stop = asyncio.Event(), asyncio.Event()

    async def handle(batch: Batch) -> None:
        now = time.time()
        latencies.extend(now - json.loads(received.data)["at"] for received in batch.messages)
        warm.set()
        if len(latencies) >= task.messages:
            stop.set()

    async with open_broker(task) as broker:
        consuming = asyncio.create_task(
            broker.consume(QUEUE, handle, options=ConsumerOptions(concurrency=task.workers), stop=stop)
        )
        # As with the peers, connections are open before the first message: their start is nobody's latency.
        await broker.wakeups.wait_until_listening()
        await broker.publish(QUEUE, [message(-1)])
        await warm.wait()
        latencies.clear()
        start = time.perf_counter()
        publishing = []
        for number in range(task.messages):
            await asyncio.sleep(max(0.0, start + number / task.per_second - time.perf_counter()))
            publishing.append(asyncio.create_task(broker.publish(QUEUE, [message(number)])))
        await asyncio.gather(*publishing)
        await consuming
    return Report(latencies=tuple(latencies))


if __name__ == "__main__":
    # As the daemons run.
    run_program(
        {"prepare": prepare, "publish": publish, "consume": consume, "latency": latency},
        loop_factory=uvloop.new_event_loop,
    )
