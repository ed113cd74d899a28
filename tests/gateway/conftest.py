"""One gateway process for the folder, and Google's own clients that know nothing but PUBSUB_EMULATOR_HOST."""

import queue
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from google.api_core.exceptions import DeadlineExceeded
from google.cloud import pubsub_v1
from google.pubsub_v1 import SubscriberClient
from google.pubsub_v1.types import StreamingPullRequest, StreamingPullResponse

from clientmgr.base.database import Database
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from tests.gateway.process import GatewayProcess

PROJECT = "client-manager"
POLL_S = 8


@dataclass(frozen=True)
class Clients:
    """Google's high-level clients and short names for resources."""

    publisher: pubsub_v1.PublisherClient
    subscriber: pubsub_v1.SubscriberClient

    def topic(self, **options: object) -> str:
        """A new topic's name."""
        name: str = self.publisher.topic_path(PROJECT, f"topic-{uuid.uuid4().hex[:12]}")
        self.publisher.create_topic(request={"name": name, **options})
        return name

    def subscription(self, topic: str, **options: object) -> str:
        """A new subscription's name."""
        name: str = self.subscriber.subscription_path(PROJECT, f"sub-{uuid.uuid4().hex[:12]}")
        self.subscriber.create_subscription(request={"name": name, "topic": topic, **options})
        return name

    def publish(self, topic: str, *bodies: bytes, ordering_key: str = "", **attributes: str) -> list[str]:
        """The message ids, once the gateway has confirmed them."""
        futures = [self.publisher.publish(topic, body, ordering_key=ordering_key, **attributes) for body in bodies]
        return [future.result(timeout=30) for future in futures]

    def pull(self, subscription: str, count: int = 100, wait_s: float = 10.0) -> list[pubsub_v1.types.ReceivedMessage]:
        """What one Pull brings; empty when nothing came in time."""
        try:
            response = self.subscriber.pull(
                request={"subscription": subscription, "max_messages": count}, timeout=wait_s, retry=None
            )
        except DeadlineExceeded:  # Google's service, too, may answer an idle Pull only when it is too late
            return []
        return list(response.received_messages)

    def bodies(self, subscription: str, count: int = 100, wait_s: float = 10.0) -> list[bytes]:
        return [received.message.data for received in self.pull(subscription, count, wait_s)]

    def acknowledge(self, subscription: str, *received: pubsub_v1.types.ReceivedMessage) -> None:
        self.subscriber.acknowledge(
            request={"subscription": subscription, "ack_ids": [one.ack_id for one in received]}, retry=None
        )

    def set_deadline(self, subscription: str, seconds: int, *received: pubsub_v1.types.ReceivedMessage) -> None:
        self.subscriber.modify_ack_deadline(
            request={
                "subscription": subscription,
                "ack_ids": [one.ack_id for one in received],
                "ack_deadline_seconds": seconds,
            },
            retry=None,
        )


class RawStream:
    """A stream whose every request the test decides on."""

    def __init__(self, clients: Clients, subscription: str, **options: Any) -> None:
        self._requests: queue.Queue[StreamingPullRequest | None] = queue.Queue()
        self.send(subscription=subscription, stream_ack_deadline_seconds=60, **options)
        self._call: Any = SubscriberClient.streaming_pull(
            clients.subscriber, requests=iter(self._requests.get, None), timeout=60
        )

    def send(self, **fields: Any) -> None:
        self._requests.put(StreamingPullRequest(**fields))

    def next(self) -> StreamingPullResponse:
        response: StreamingPullResponse = next(self._call)
        return response

    def messages(self, count: int) -> list[pubsub_v1.types.ReceivedMessage]:
        received: list[pubsub_v1.types.ReceivedMessage] = []
        while len(received) < count:
            received.extend(self.next().received_messages)
        return received

    def cut(self) -> None:
        """End it as a client that dies does."""
        self._call.cancel()
        self._requests.put(None)


@pytest.fixture(scope="session")
def gateway_database(postgres_server: EmbeddedPostgres, _template: str) -> Database:
    name = f"gateway_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{_template}"')
    return Database(postgres_server.url(name))


@pytest.fixture(scope="session")
def gateway(gateway_database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    # Looks so seldom that a test which waits for a message notices when nobody was woken.
    log_file = tmp_path_factory.mktemp("gateway") / "gateway.log"
    process = GatewayProcess(gateway_database, log_file, poll_ms=POLL_S * 1000)
    process.start()
    yield process
    process.stop()


@pytest.fixture
def clients_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Clients]]:
    opened: list[Clients] = []

    def connect(address: str) -> Clients:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", address)
        options = pubsub_v1.types.PublisherOptions(enable_message_ordering=True)
        clients = Clients(pubsub_v1.PublisherClient(publisher_options=options), pubsub_v1.SubscriberClient())
        opened.append(clients)
        return clients

    yield connect
    for clients in opened:
        clients.publisher.stop()
        clients.publisher.transport.close()
        clients.subscriber.close()


@pytest.fixture
def clients(gateway: GatewayProcess, clients_of: Callable[[str], Clients]) -> Clients:
    return clients_of(gateway.address)


@pytest.fixture
def open_stream(clients: Clients) -> Iterator[Callable[..., RawStream]]:
    streams: list[RawStream] = []

    def start(subscription: str, **options: Any) -> RawStream:
        streams.append(RawStream(clients, subscription, **options))
        return streams[-1]

    yield start
    for stream in streams:
        stream.cut()
