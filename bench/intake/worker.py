"""The benchmark's programs: a client that sends events over many connections, and one that publishes without HTTP."""

import asyncio
import json
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, cast

import uvloop

from bench.harness.keys import BENCH_KEY
from clientmgr.base.database import Database
from clientmgr.base.settings import load_settings
from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.contracts import topics

NOW_MS = 1_763_248_000_123


def event(number: int) -> bytes:
    payload = {"platform": "ios", "applicationVersion": "4.10.1", "osVersion": "18.2", "language": "de-AT"}
    content = {"eventId": f"event-{number}", "eventType": "client.updated", "clientId": f"client-{number % 5000}"}
    return json.dumps({**content, "occurredAt": NOW_MS + number, "payload": payload}).encode()


def message(number: int) -> Message:
    content = {**json.loads(event(number)), "customerId": 7, "applicationCode": "A"}
    return Message(json.dumps(content).encode(), "7", content["clientId"])


@dataclass
class Load:
    """What is still to be sent, and how long each answer took."""

    requests: deque[bytes]
    left: int
    latencies: list[float] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    idle: deque["Client"] = field(default_factory=deque)
    due: deque[float] = field(default_factory=deque)
    """Sent when a connection is free, and counted from when they were due."""


class Client(asyncio.Protocol):
    """One request at a time."""

    def __init__(self, load: Load, *, closed_loop: bool) -> None:
        self._load = load
        self._closed_loop = closed_loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, due: float) -> None:
        self._due = due
        self._transport.write(self._load.requests.popleft())

    def data_received(self, data: bytes) -> None:
        load, now = self._load, time.perf_counter()
        assert data.startswith(b"HTTP/1.1 202 "), data
        assert data.endswith(b"}"), data
        load.latencies.append(now - self._due)
        load.left -= 1
        if not load.left:
            load.done.set()
        elif self._closed_loop and load.requests:
            self.send(now)
        elif load.due:
            self.send(load.due.popleft())
        else:
            load.idle.append(self)


async def load(task: dict[str, Any]) -> dict[str, Any]:
    head = (
        "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {task['key']}\r\nContent-Length: %d\r\n\r\n"
    ).encode()
    bodies = [event(number) for number in range(task["events"])]
    work = Load(deque(head % len(body) + body for body in bodies), task["events"])
    loop, per_second = asyncio.get_running_loop(), task["per_second"]
    clients = [
        (await loop.create_connection(lambda: Client(work, closed_loop=not per_second), "127.0.0.1", task["port"]))[1]
        for _ in range(task["connections"])
    ]
    start = await _go()
    if per_second:
        work.idle.extend(clients)
        for number in range(task["events"]):
            due = start + number / per_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            if work.idle:
                work.idle.popleft().send(due)
            else:
                work.due.append(due)
    else:
        for client in clients:
            if work.requests:
                client.send(time.perf_counter())
    await work.done.wait()
    return {"wallS": time.perf_counter() - start, "latencies": work.latencies}


async def publish(task: dict[str, Any]) -> dict[str, Any]:
    messages = deque(message(number) for number in range(task["events"]))

    async def publisher() -> None:
        while messages:
            await broker.publish(topics.WRITER, [messages.popleft()])

    settings = load_settings(database_url=task["url"], audit_hash_key=BENCH_KEY)
    async with PostgresBroker(Database(task["url"]), settings) as broker:
        await broker.ensure_topic(topics.WRITER)
        start = await _go()
        cpu_s = time.process_time()
        await asyncio.gather(*(publisher() for _ in range(task["connections"])))
        return {"wallS": time.perf_counter() - start, "cpuS": time.process_time() - cpu_s}


async def _go() -> float:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    return time.perf_counter()


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run({"load": load, "publish": publish}[asked["kind"]](asked))), flush=True)
