"""pgmq as a worker program: its SQL as the PyPI package ships it, called by psycopg directly, its quickest way.

Read, handler and delete are one transaction. It keeps no order between readers.
"""

import asyncio
import json
import time
from pathlib import Path

import pgmq
import psycopg
from workload import (
    HANDLED_TABLE,
    INSERT_MANY,
    INSERT_ROW,
    Report,
    Stopwatch,
    Task,
    body,
    run_program,
    shares,
)

QUEUE = "bench"
READ = "SELECT msg_id, message FROM pgmq.read(%s, 60, %s)"
SEND = "SELECT pgmq.send_batch(%s, %s::jsonb[])"


async def prepare(task: Task) -> None:
    sql = (Path(pgmq.__file__).parent / "sql" / "pgmq.sql").read_text()
    async with await psycopg.AsyncConnection.connect(task.url) as connection:
        await connection.execute(sql)
        await connection.execute("SELECT pgmq.create(%s)", (QUEUE,))
        await connection.execute(HANDLED_TABLE)


async def publish(task: Task) -> Report:
    async def publisher(connection, batches: list[range]) -> None:
        for batch in batches:
            await connection.execute(SEND, (QUEUE, [json.dumps(body(number)) for number in batch]))

    connections = [await psycopg.AsyncConnection.connect(task.url, autocommit=True) for _ in range(task.workers)]
    watch = Stopwatch()
    await asyncio.gather(*map(publisher, connections, shares(task.messages, task.workers, task.batch)))
    return watch.report()


async def consume(task: Task) -> Report:
    async def consumer(connection) -> None:
        while rows := await (await connection.execute(READ, (QUEUE, task.batch))).fetchall():
            if task.bulk:
                await connection.execute(
                    INSERT_MANY, ([row[1]["n"] for row in rows], [json.dumps(row[1]) for row in rows])
                )
            else:
                for row in rows:
                    await connection.execute(INSERT_ROW, (row[1]["n"], json.dumps(row[1])))
            await connection.execute("SELECT pgmq.delete(%s, %s::bigint[])", (QUEUE, [row[0] for row in rows]))
            await connection.commit()

    connections = [await psycopg.AsyncConnection.connect(task.url) for _ in range(task.workers)]
    watch = Stopwatch()
    await asyncio.gather(*map(consumer, connections))
    return watch.report()


async def latency(task: Task) -> Report:
    latencies: list[float] = []

    async def consumer(connection) -> None:
        while len(latencies) < task.messages:
            # It looks again every 5 ms; its default is 100.
            query = "SELECT msg_id, message FROM pgmq.read_with_poll(%s, 60, 100, 1, 5)"
            rows = await (await connection.execute(query, (QUEUE,))).fetchall()
            now = time.time()
            latencies.extend(now - row[1]["at"] for row in rows)
            await connection.execute("SELECT pgmq.delete(%s, %s::bigint[])", (QUEUE, [row[0] for row in rows]))

    connections = [await psycopg.AsyncConnection.connect(task.url, autocommit=True) for _ in range(2)]
    consuming = asyncio.create_task(consumer(connections[0]))
    start = time.perf_counter()
    for number in range(task.messages):
        await asyncio.sleep(max(0.0, start + number / task.per_second - time.perf_counter()))
        await connections[1].execute(SEND, (QUEUE, [json.dumps(body(number))]))
    await consuming
    return Report(latencies=tuple(latencies))


if __name__ == "__main__":
    run_program({"prepare": prepare, "publish": publish, "consume": consume, "latency": latency})
