"""Neighbours of poisoned tenants on the message log: what those lose whose messages can be handled, while others' fail.

| variant | what it does |
|---|---|
| nobody is poisoned | the same messages, all of which can be handled |
| 1, 100 poisoned | every message of so many tenants raises an error that nobody foresaw, always |

1,000 tenants publish alike. The handler inserts a row a message. Counted are the neighbours' messages, those of the
900 tenants that are never poisoned: until the last of them is handled (a backlog), and how long each waits (at a
steady rate).
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import structlog

from bench.harness.measure import Sample, ensure_same_work, take_turns
from bench.harness.options import Options
from bench.harness.report import Comparison, Line, speed_ratio
from bench.harness.servers import BenchPostgres, bench_postgres
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import load_settings
from clientmgr.broker.interface import Batch, ConsumerOptions, Message
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.operations.migrations import migrate_database

TENANTS, MOST_POISONED = 1_000, 100
AIM_KEPT, AIM_WAIT_S = 0.8, 1.0
TOPIC = SUBSCRIPTION = "bench-neighbours"
PER_SECOND = 200
VARIANTS = {"nobody is poisoned": 0, "1 poisoned": 1, f"{MOST_POISONED} poisoned": MOST_POISONED}
HANDLED = """
CREATE TABLE handled (tenant integer, n integer, at timestamptz NOT NULL DEFAULT clock_timestamp());
GRANT ALL ON handled TO clientmgr_writer
"""


def run(options: Options) -> Iterator[Comparison]:
    # A terminal's tracebacks would cost more than all the rest. The daemons write theirs as JSON.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with bench_postgres(options) as server:
        yield backlog(server, 10_000 if options.quick else 100_000, min(options.rounds, 3))
        yield waiting(server, seconds=3 if options.quick else 15)


def backlog(server: BenchPostgres, messages: int, rounds: int) -> Comparison:
    """Messages that wait already."""
    samples: dict[str, list[Sample]] = {name: [] for name in VARIANTS}
    neighbours = sum(_is_neighbour(n % TENANTS) for n in range(messages))
    for name in take_turns(list(VARIANTS), rounds):
        database = _prepared(server)
        asyncio.run(_publish(database, messages))
        server.settle()
        cpu, server_cpu, started = time.process_time(), server.cpu_seconds() or 0.0, time.time()
        asyncio.run(_handle(database, VARIANTS[name], neighbours))
        spent = time.process_time() - cpu, (server.cpu_seconds() or 0.0) - server_cpu
        [(ended, rows, different)] = _of_neighbours(
            database, "extract(epoch FROM max(at)), count(*), count(DISTINCT n)"
        )
        ensure_same_work("neighbours' rows and messages", {"sent": (neighbours,) * 2, name: (rows, different)})
        samples[name].append(Sample(float(ended) - started, *spent))
    lines = tuple(Line(name, tuple(taken)) for name, taken in samples.items())
    kept = 1 / speed_ratio(lines[0], lines[-1])
    note = f"aim: {AIM_KEPT:.0%} of their rate with {MOST_POISONED} poisoned: {kept:.0%}, {_verdict(kept >= AIM_KEPT)}"
    return Comparison(f"Neighbours' backlog, {messages} messages in all", lines, neighbours, "messages", (note,))


def waiting(server: BenchPostgres, *, seconds: float) -> Comparison:
    """Messages as they come. A line's time is the slowest neighbour's, from the call of publish to its row."""
    lines = []
    for name, poisoned in VARIANTS.items():
        database = _prepared(server)
        messages = round(seconds * PER_SECOND)
        neighbours = sum(_is_neighbour(n % TENANTS) for n in range(messages))
        published = asyncio.run(_publish_and_handle(database, poisoned, messages, neighbours))
        rows = _of_neighbours(database, "n, extract(epoch FROM at)")
        slowest = max(float(at) - published[n] for n, at in rows)
        lines.append(Line(name, (Sample(slowest, 0.0),)))
    met = _verdict(all(line.wall_s < AIM_WAIT_S for line in lines[1:]))
    note = f"aim: no neighbour waits longer than {AIM_WAIT_S:.0f} s: {met}"
    return Comparison(f"The slowest neighbour at {PER_SECOND} messages/s", tuple(lines), notes=(note,))


def _is_neighbour(tenant: int) -> bool:
    """Those that may be poisoned are spread over all, and the same in every variant."""
    return tenant % (TENANTS // MOST_POISONED) != 0


def _poisoned(count: int) -> set[str]:
    candidates = (str(tenant) for tenant in range(TENANTS) if not _is_neighbour(tenant))
    return set(itertools.islice(candidates, count))


def _prepared(server: BenchPostgres) -> Database:
    server.create_database("neighbours")
    database = Database(server.url("neighbours"))
    migrate_database(database)
    with database.connect(Role.OWNER) as connection:
        connection.execute(HANDLED)

    async def make_topic() -> None:
        async with _broker(database) as broker:
            await broker.ensure_topic(TOPIC)
            await broker.ensure_subscription(SUBSCRIPTION, TOPIC)

    asyncio.run(make_topic())
    return database


def _broker(database: Database) -> PostgresBroker:
    return PostgresBroker(database, load_settings(database_url=database.url))


def _message(number: int) -> Message:
    return Message(b'{"n": %d, "text": "%b"}' % (number, b"x" * 100), tenant=str(number % TENANTS), key=str(number))


async def _publish(database: Database, messages: int) -> None:
    """In transactions of their own for each message, as tenants do."""
    async with _broker(database) as broker:
        numbers = iter(range(messages))
        while some := list(itertools.islice(numbers, 2_000)):
            await asyncio.gather(*(broker.publish(TOPIC, [_message(number)]) for number in some))


async def _handle(database: Database, poisoned: int, neighbours: int, ready: asyncio.Event | None = None) -> None:
    """Consume until all neighbours' messages are handled."""
    poison, stop = _poisoned(poisoned), asyncio.Event()

    async def handle(batch: Batch) -> None:
        for message in batch.messages:
            if message.tenant in poison:
                raise KeyError("nobody foresaw this")
            await batch.connection.execute(
                "INSERT INTO handled VALUES (%s, %s)", (int(message.tenant), int(message.key))
            )

    async with _broker(database) as broker:
        consuming = asyncio.create_task(
            broker.consume(SUBSCRIPTION, handle, options=ConsumerOptions(concurrency=2), stop=stop)
        )
        if ready is not None:
            await broker.wakeups.wait_until_listening()
            ready.set()
        watch = await database.connect_async(Role.OWNER, autocommit=True)
        async with watch:
            while not consuming.done():
                found = await watch.execute(_NEIGHBOURS.format("count(*)").encode())
                if await found.fetchone() == (neighbours,):
                    break
                await asyncio.sleep(0.1)
        stop.set()
        await consuming


async def _publish_and_handle(database: Database, poisoned: int, messages: int, neighbours: int) -> dict[int, float]:
    """When each message was published."""
    published: dict[int, float] = {}
    ready = asyncio.Event()
    handling = asyncio.create_task(_handle(database, poisoned, neighbours, ready))
    await ready.wait()
    async with _broker(database) as broker:
        started = time.perf_counter()
        calls = []
        for number in range(messages):
            await asyncio.sleep(max(0.0, started + number / PER_SECOND - time.perf_counter()))
            published[number] = time.time()
            calls.append(asyncio.create_task(broker.publish(TOPIC, [_message(number)])))
        await asyncio.gather(*calls)
        await handling
    return published


_NEIGHBOURS = f"SELECT {{}} FROM handled WHERE tenant % {TENANTS // MOST_POISONED} <> 0"


def _of_neighbours(database: Database, columns: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database.url) as connection:
        return connection.execute(_NEIGHBOURS.format(columns).encode()).fetchall()


def _verdict(met: bool) -> str:
    return "met" if met else "missed"
