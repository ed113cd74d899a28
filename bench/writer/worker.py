"""A worker program: gets ready, says so, starts when told, and reports its own time, so that no start-up is counted.

It is called with one JSON argument (`Task`), prints `ready`, waits for a line, and prints one JSON line (`Report`).
"""

import asyncio
import dataclasses
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog
import uvloop

from bench.writer.databases import settings_for
from bench.writer.rehearsal import NotedBatch, read_lanes
from bench.writer.tasks import Report, Task
from clientmgr.base.database import Database, Role
from clientmgr.broker.interface import Batch, Handler, Outcome
from clientmgr.contracts.device_events import decode_event
from clientmgr.devices.store import DeviceStore
from streaming import contact_deletion, writer
from streaming.runtime.daemon import Daemon, Services, Source, consume_until_stopped

DAEMONS = {daemon.name: daemon for daemon in (writer.DAEMON, contact_deletion.DAEMON)}


Work = Callable[[], Awaitable[object]]


async def prepare_daemon(task: Task, report: Report) -> Work:
    daemon = _remembering_memory(DAEMONS[task.daemon], task.messages, report)
    settings = settings_for(task.url)
    return lambda: consume_until_stopped(daemon, settings, asyncio.Event(), burst=True)


async def prepare_one_commit_per_event(task: Task, _report: Report) -> Work:
    """The writer's own code, an event at a time, straight from memory."""

    async def work_through(batches: Sequence[NotedBatch]) -> None:
        store = DeviceStore.from_settings(settings_for(task.url))
        async with await Database(task.url).connect_async(Role.WRITER) as connection:
            for batch in batches:
                for message in batch.messages:
                    event = decode_event(message)
                    await store.apply_events(connection, {event.customer_id: [event]})
                    await connection.commit()

    return _in_lanes(task, work_through)


async def prepare_limit(task: Task, _report: Report) -> Work:
    """The rehearsed statements, a round trip and a commit for each batch."""

    async def work_through(batches: Sequence[NotedBatch]) -> None:
        async with await Database(task.url).connect_async(Role.WRITER, autocommit=True) as connection:
            for batch in batches:
                async with connection.pipeline():
                    await connection.execute("BEGIN")
                    for query, parameters in batch.statements:
                        await connection.execute(query, parameters)
                    await connection.execute("COMMIT")

    return _in_lanes(task, work_through)


KINDS: dict[str, Callable[[Task, Report], Awaitable[Work]]] = {
    "daemon": prepare_daemon,
    "one-commit-per-event": prepare_one_commit_per_event,
    "limit": prepare_limit,
}


def _in_lanes(task: Task, work_through: Callable[[Sequence[NotedBatch]], Awaitable[None]]) -> Work:
    """The noted batches over our connections, as many at once as the daemon would have in hand."""
    lanes = read_lanes(Path(task.rehearsal), task.workers * task.connections)
    ours = lanes[task.worker * task.connections : (task.worker + 1) * task.connections]

    async def work() -> None:
        await asyncio.gather(*map(work_through, ours))

    return work


def _remembering_memory(daemon: Daemon, messages: int, report: Report) -> Daemon:
    """The daemon, with a look at our memory when a tenth, a half and all of the messages are done."""
    if not messages:
        return daemon
    marks = [(share, messages * share // 100) for share in (10, 50, 100)]
    done = 0

    def watched(handler: Handler) -> Handler:
        async def handle(batch: Batch) -> Sequence[Outcome] | None:
            nonlocal done
            outcomes = await handler(batch)
            done += len(batch.messages)
            while marks and done >= marks[0][1]:
                report.memory_kb[f"{marks.pop(0)[0]}%"] = _resident_kb()
            return outcomes

        return handle

    def sources(services: Services) -> list[Source]:
        return [dataclasses.replace(source, handler=watched(source.handler)) for source in daemon.sources(services)]

    return dataclasses.replace(daemon, sources=sources)


def _resident_kb() -> int:
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmRSS"))


async def _run(task: Task) -> Report:
    report = Report()
    work = await KINDS[task.kind](task, report)
    print("ready", flush=True)
    sys.stdin.readline()
    wall, cpu = time.perf_counter(), time.process_time()
    await work()
    report.wall_s, report.cpu_s = time.perf_counter() - wall, time.process_time() - cpu
    return report


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    arguments: dict[str, Any] = json.loads(sys.argv[1])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as the daemons run
        report = runner.run(_run(Task(**arguments)))
    print(json.dumps(asdict(report)))


if __name__ == "__main__":
    main()
