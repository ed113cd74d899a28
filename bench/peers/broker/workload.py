"""The work that every transport does: the same messages in, one row per message out. Each runs in a process of its own.

A worker program is called with one JSON argument (`Task`) and prints one JSON line (`Report`). It counts its own time,
from the first message to the last commit, so that nobody's start-up is counted. Standard library only: the peers have
no package of ours.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

QUEUE = "bench-queue"
TENANTS = 64

HANDLED_TABLE = "CREATE TABLE handled (n bigint NOT NULL, payload text NOT NULL)"
INSERT_ROW = "INSERT INTO handled (n, payload) VALUES (%s, %s)"
INSERT_MANY = "INSERT INTO handled (n, payload) SELECT * FROM unnest(%b::bigint [], %b::text [])"


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker program is to do."""

    url: str
    kind: str
    """prepare, publish, consume or latency"""
    messages: int = 0
    batch: int = 100
    workers: int = 1
    bulk: bool = False
    per_second: int = 400


@dataclass(frozen=True, slots=True)
class Report:
    """What it took. Latencies are in seconds, from before publishing to inside the handler."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    latencies: tuple[float, ...] = ()


def body(number: int) -> dict[str, Any]:
    """A message of some 160 bytes."""
    return {"n": number, "customerId": number % TENANTS + 1, "text": "x" * 100, "at": time.time()}


def shares(messages: int, workers: int, batch: int) -> Iterator[list[range]]:
    """For each worker its messages, as batches."""
    for worker in range(workers):
        first, last = messages * worker // workers, messages * (worker + 1) // workers
        yield [range(start, min(start + batch, last)) for start in range(first, last, batch)]


class Stopwatch:
    """Wall and processor time of this process since it was made."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def report(self) -> Report:
        return Report(time.perf_counter() - self._wall, time.process_time() - self._cpu)


def run_program(
    tasks: dict[str, Callable[[Task], Awaitable[Report | None]]],
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """The main function of a worker program."""
    task = Task(**json.loads(sys.argv[1]))

    async def work() -> Report | None:
        return await tasks[task.kind](task)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        report = runner.run(work())
    print(json.dumps(asdict(report or Report())))
