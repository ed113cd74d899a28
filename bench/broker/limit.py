"""The physical limit as a worker program: COPY in, cursor out, and the handler's rows; no offsets, order or claims."""

import asyncio
import json
from typing import Any

import psycopg

from bench.peers.broker.workload import (
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

TABLE = "CREATE TABLE plain (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload bytea NOT NULL)"


async def prepare(task: Task) -> None:
    async with await psycopg.AsyncConnection.connect(task.url) as connection:
        await connection.execute(HANDLED_TABLE)
        await connection.execute(TABLE)


async def publish(task: Task) -> Report:
    async def publisher(batches: list[range]) -> None:
        async with await psycopg.AsyncConnection.connect(task.url) as connection:
            for batch in batches:
                async with connection.cursor() as cursor, cursor.copy("COPY plain (payload) FROM STDIN BINARY") as copy:
                    copy.set_types(["bytea"])
                    for number in batch:
                        await copy.write_row((json.dumps(body(number)).encode(),))
                await connection.commit()

    watch = Stopwatch()
    await asyncio.gather(*map(publisher, shares(task.messages, task.workers, task.batch)))
    return watch.report()


async def consume(task: Task) -> Report:
    async def consumer(worker: int) -> None:
        async with (
            await psycopg.AsyncConnection.connect(task.url) as reading,
            await psycopg.AsyncConnection.connect(task.url) as writing,
            reading.cursor(name="out", binary=True) as cursor,
        ):
            await cursor.execute("SELECT payload FROM plain WHERE id %% %s = %s", (task.workers, worker))
            while rows := await cursor.fetchmany(task.batch):
                await _handle(writing, [bytes(row[0]) for row in rows], bulk=task.bulk)
                await writing.commit()

    watch = Stopwatch()
    await asyncio.gather(*map(consumer, range(task.workers)))
    return watch.report()


async def _handle(connection: psycopg.AsyncConnection[Any], payloads: list[bytes], *, bulk: bool) -> None:
    if bulk:
        numbers = [json.loads(payload)["n"] for payload in payloads]
        await connection.execute(INSERT_MANY, (numbers, [payload.decode() for payload in payloads]))
        return
    for payload in payloads:
        await connection.execute(INSERT_ROW, (json.loads(payload)["n"], payload.decode()))


if __name__ == "__main__":
    run_program({"prepare": prepare, "publish": publish, "consume": consume})
