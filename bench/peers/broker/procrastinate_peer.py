"""Procrastinate as a worker program. A job at a time, and no transaction that holds both the job and its work."""

import asyncio
import json
import time

import procrastinate
import psycopg
import psycopg_pool
from workload import HANDLED_TABLE, INSERT_ROW, Report, Stopwatch, Task, body, run_program, shares


def make_app(task: Task) -> procrastinate.App:
    connector = procrastinate.PsycopgConnector(conninfo=task.url, min_size=task.workers + 2, max_size=task.workers + 4)
    return procrastinate.App(connector=connector)


async def prepare(task: Task) -> None:
    async with make_app(task).open_async() as app:
        await app.schema_manager.apply_schema_async()
    async with await psycopg.AsyncConnection.connect(task.url) as connection:
        await connection.execute(HANDLED_TABLE)


async def publish(task: Task) -> Report:
    app = make_app(task)

    @app.task(name="handle", queue="bench")
    async def handle(**_content: object) -> None: ...

    async def publisher(batches: list[range]) -> None:
        for batch in batches:
            await handle.batch_defer_async(*(body(number) for number in batch))

    async with app.open_async():
        watch = Stopwatch()
        await asyncio.gather(*map(publisher, shares(task.messages, task.workers, task.batch)))
        return watch.report()


async def consume(task: Task) -> Report:
    app = make_app(task)
    async with psycopg_pool.AsyncConnectionPool(task.url, min_size=task.workers, max_size=task.workers) as pool:

        @app.task(name="handle", queue="bench")
        async def handle(**content: object) -> None:
            async with pool.connection() as connection:
                await connection.execute(INSERT_ROW, (content["n"], json.dumps(content)))

        async with app.open_async():
            watch = Stopwatch()
            await app.run_worker_async(
                concurrency=task.workers, wait=False, listen_notify=False, install_signal_handlers=False
            )
            return watch.report()


async def latency(task: Task) -> Report:
    app = make_app(task)
    latencies: list[float] = []

    @app.task(name="handle", queue="bench")
    async def handle(**content: object) -> None:
        latencies.append(time.time() - float(str(content["at"])))

    async with app.open_async():
        worker = asyncio.create_task(app.run_worker_async(concurrency=8, install_signal_handlers=False))
        start = time.perf_counter()
        for number in range(task.messages):
            await asyncio.sleep(max(0.0, start + number / task.per_second - time.perf_counter()))
            await handle.defer_async(**body(number))
        while len(latencies) < task.messages:  # noqa: ASYNC110 - its task has no other way to tell
            await asyncio.sleep(0.05)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    return Report(latencies=tuple(latencies))


if __name__ == "__main__":
    run_program({"prepare": prepare, "publish": publish, "consume": consume, "latency": latency})
