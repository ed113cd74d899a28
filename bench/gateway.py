"""The Pub/Sub gateway: publish, and pull with acknowledgement, with Google's client; beside the log alone.

| variant | what it does |
|---|---|
| gateway | Google's Python client, 100 messages a request, 4 threads; pulls of up to 1,000, each acknowledged |
| log alone | the same messages through `PostgresBroker`, 4 at once; a handler that does nothing, in batches of 1,000 |
| emulator | what BENCH_PUBSUB_EMULATOR=host:port names, where somebody has started one; as the gateway |

Messages of 1 KB: without ordering keys, with 8, and with 10,000. Checked: each message comes once, and those of a key
in their order. The gateway's own processor time is in neither column.
"""

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from google.pubsub_v1 import PublisherClient, SubscriberClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from bench.harness.measure import Sample, ensure_same_work, measure, take_turns
from bench.harness.options import Options
from bench.harness.report import Comparison, Line
from bench.harness.servers import BenchPostgres, bench_postgres
from clientmgr.base.database import Database
from clientmgr.base.settings import load_settings
from clientmgr.broker.interface import Batch, ConsumerOptions, Message
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.local.embedded.server import free_port
from clientmgr.operations.migrations import migrate_database

GATEWAY, LOG, EMULATOR = "gateway", "log alone", "emulator"
AT_ONCE, A_REQUEST, A_PULL = 4, 100, 1_000
START_WITHIN_S = 300
NAME = "bench-gateway"
BODY = b'{"n": %d, "text": "' + b"x" * 980 + b'"}'

Messages = Sequence[tuple[int, str]]
"""A number and an ordering key each."""


def run(options: Options) -> Iterator[Comparison]:
    messages = 2_000 if options.quick else 50_000
    with bench_postgres(options) as server:
        for keys in (0, 8, 10_000):
            yield from compare(server, messages, keys, min(options.rounds, 3))


def compare(server: BenchPostgres, amount: int, keys: int, rounds: int) -> list[Comparison]:
    """Publishing, and reading what was published."""
    messages = [(number, f"key-{number % keys}" if keys else "") for number in range(amount)]
    variants: dict[str, Callable[[BenchPostgres], contextlib.AbstractContextManager[Any]]] = {
        GATEWAY: _gateway,
        LOG: _log,
    }
    if os.environ.get("BENCH_PUBSUB_EMULATOR"):
        variants[EMULATOR] = _emulator
    published: dict[str, list[Sample]] = {name: [] for name in variants}
    read: dict[str, list[Sample]] = {name: [] for name in variants}
    for name in take_turns(list(variants), rounds):
        with variants[name](server) as system:
            system.prepare(ordered=keys > 0)
            server.settle()
            published[name].append(measure(lambda system=system: system.publish(messages), server))  # type: ignore[misc]
            server.settle()
            received: list[tuple[int, str]] = []
            read[name].append(measure(lambda: received.extend(system.read(amount)), server))  # noqa: B023
            ensure_same_work("messages", {"sent": sorted(messages), name: sorted(received)})
            if keys:
                ensure_same_work("order", {"sent": _by_key(messages), name: _by_key(received)})
    what = f"{amount} messages of 1 KB, {f'{keys:,} ordering keys' if keys else 'no ordering keys'}"
    return [
        Comparison(f"{title} {what}", tuple(Line(n, tuple(s)) for n, s in samples.items()), amount, "messages")
        for title, samples in (("Publishing", published), ("Reading", read))
    ]


def _by_key(messages: Messages) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for number, key in messages:
        found[key].append(number)
    return dict(sorted(found.items()))


class _PubSub:
    """Whoever speaks Pub/Sub at an address."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._project = f"bench-{uuid.uuid4().hex[:8]}"
        self._topic = f"projects/{self._project}/topics/{NAME}"
        self._subscription = f"projects/{self._project}/subscriptions/{NAME}"

    def prepare(self, *, ordered: bool) -> None:
        with self._clients() as (publisher, subscriber):
            publisher.create_topic(name=self._topic)
            subscriber.create_subscription(
                request={
                    "name": self._subscription,
                    "topic": self._topic,
                    "ack_deadline_seconds": 60,
                    "enable_message_ordering": ordered,
                }
            )

    def publish(self, messages: Messages) -> None:
        with self._clients() as (publisher, _):

            def send(some: Messages) -> None:
                bodies = [{"data": BODY % number, "ordering_key": key} for number, key in some]
                publisher.publish(topic=self._topic, messages=bodies)

            def send_in_order(share: Messages) -> None:
                for some in _requests(share):
                    send(some)

            with ThreadPoolExecutor(AT_ONCE) as threads:
                if not messages[0][1]:
                    list(threads.map(send, _requests(messages)))
                    return
                # A key's messages go one request after the other, or they would have no order.
                shares = [[m for m in messages if hash(m[1]) % AT_ONCE == share] for share in range(AT_ONCE)]
                list(threads.map(send_in_order, shares))

    def read(self, amount: int) -> Messages:
        received: list[tuple[int, str]] = []
        all_acknowledged = threading.Event()
        to_come = itertools.count(amount - 1, -1)

        def pull(subscriber: SubscriberClient) -> None:
            try:
                while not all_acknowledged.is_set():
                    answer = subscriber.pull(subscription=self._subscription, max_messages=A_PULL, timeout=60)
                    got = answer.received_messages
                    received.extend([(_number(m.message.data), m.message.ordering_key) for m in got])
                    if got:
                        subscriber.acknowledge(subscription=self._subscription, ack_ids=[m.ack_id for m in got])
                    if 0 in [next(to_come) for _ in got]:
                        all_acknowledged.set()
            except Exception:
                # The others wait for messages that do not come, until their connection is closed.
                if not all_acknowledged.is_set():
                    all_acknowledged.set()
                    raise

        with ThreadPoolExecutor(AT_ONCE) as threads:
            with self._clients() as (_, subscriber):
                pulls = [threads.submit(pull, subscriber) for _ in range(AT_ONCE)]
                all_acknowledged.wait()
            for one in pulls:
                one.result()
        return received

    @contextlib.contextmanager
    def _clients(self) -> Iterator[tuple[PublisherClient, SubscriberClient]]:
        with grpc.insecure_channel(self._address, options=[("grpc.max_receive_message_length", -1)]) as channel:
            yield (
                PublisherClient(transport=PublisherGrpcTransport(channel=channel)),
                SubscriberClient(transport=SubscriberGrpcTransport(channel=channel)),
            )


class _Log:
    def __init__(self, database: Database) -> None:
        self._database = database

    def _broker(self) -> PostgresBroker:
        """One for each event loop, to be entered."""
        return PostgresBroker(self._database, load_settings(database_url=self._database.url))

    def prepare(self, *, ordered: bool) -> None:
        async def make() -> None:
            async with self._broker() as broker:
                await broker.ensure_topic(NAME)
                await broker.ensure_subscription(NAME, NAME)

        asyncio.run(make())

    def publish(self, messages: Messages) -> None:
        async def publisher(broker: PostgresBroker, requests: Iterator[Messages]) -> None:
            for some in requests:
                await broker.publish(NAME, [Message(BODY % number, tenant=key) for number, key in some])

        async def all_at_once() -> None:
            requests = _requests(messages)
            # Tasks take turns in order, so that a key's messages are published in theirs.
            async with self._broker() as broker:
                await asyncio.gather(*(publisher(broker, requests) for _ in range(AT_ONCE)))

        asyncio.run(all_at_once())

    def read(self, amount: int) -> Messages:
        received: list[tuple[int, str]] = []

        async def handle(batch: Batch) -> None:
            received.extend((_number(message.data), message.tenant) for message in batch.messages)

        async def consume() -> None:
            async with self._broker() as broker:
                options = ConsumerOptions(batch_size=A_PULL, concurrency=AT_ONCE)
                await broker.consume(NAME, handle, options=options, burst=True)

        asyncio.run(consume())
        return received


@contextlib.contextmanager
def _log(server: BenchPostgres) -> Iterator[_Log]:
    yield _Log(_database(server))


@contextlib.contextmanager
def _emulator(_: BenchPostgres) -> Iterator[_PubSub]:
    yield _PubSub(os.environ["BENCH_PUBSUB_EMULATOR"])


@contextlib.contextmanager
def _gateway(server: BenchPostgres) -> Iterator[_PubSub]:
    database, port = _database(server), free_port()
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "DATA_DIR": folder,
            "DATABASE_URL": database.url,
            "PUBSUB_GATEWAY_PORT": str(port),
            "LOG_LEVEL": "error",
        }
        log_file = Path(folder) / "gateway.log"
        with log_file.open("wb") as log:
            command = [sys.executable, "-m", "clientmgr", "pubsub-gateway", "--quiet"]
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            _wait_until_healthy(process, port, log_file)
            yield _PubSub(f"127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait()


def _wait_until_healthy(process: subprocess.Popen[bytes], port: int, log_file: Path) -> None:
    give_up_at = time.monotonic() + START_WITHIN_S
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > give_up_at:
                raise RuntimeError(f"the gateway did not start:\n{log_file.read_text()[-2000:]}") from None
            time.sleep(0.1)
        else:
            return


def _database(server: BenchPostgres) -> Database:
    server.create_database("gateway")
    database = Database(server.url("gateway"))
    migrate_database(database)
    return database


def _requests(messages: Messages) -> Iterator[Messages]:
    return iter([messages[start : start + A_REQUEST] for start in range(0, len(messages), A_REQUEST)])


def _number(data: bytes) -> int:
    return int(data[6 : data.index(b",")])
