"""What was confirmed stays so: over kill -9 of the gateway, a crash of PostgreSQL, a clean stop, and two gateways."""

import functools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from google.api_core import exceptions
from google.pubsub_v1 import PublisherClient

from clientmgr.base.database import Database
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from clientmgr.operations.migrations import migrate_database
from tests.conftest import TEST_TUNING
from tests.gateway.conftest import Clients, RawStream
from tests.gateway.process import GatewayProcess

pytestmark = pytest.mark.server

OUTAGE = (exceptions.ServiceUnavailable, exceptions.DeadlineExceeded, exceptions.InternalServerError)
MESSAGES = 400
DISTURBANCES = 3


@pytest.fixture
def own_gateway(database: Database, tmp_path: Path) -> Iterator[GatewayProcess]:
    process = GatewayProcess(database, tmp_path / "gateway.log")
    process.start()
    yield process
    process.stop()


class Traffic:
    """A publisher and two consumers that go on through any outage and note only what was confirmed to them."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self.topic = clients.topic()
        self.subscription = clients.subscription(self.topic)
        self.published: set[bytes] = set()
        self.acknowledged: set[bytes] = set()
        self.came_back: set[str] = set()
        self._confirmed: set[str] = set()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._publish),
            *(threading.Thread(target=self._consume) for _ in "12"),
        ]
        self._deadline = time.monotonic() + 90

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    @property
    def done(self) -> int:
        return len(self.acknowledged)

    def _publish(self) -> None:
        for n in range(MESSAGES):
            body = f"{n}".encode()
            request = {"topic": self.topic, "messages": [{"data": body}]}
            publish = functools.partial(PublisherClient.publish, self._clients.publisher, request=request, retry=None)
            self._until_confirmed(functools.partial(publish, timeout=5))
            self.published.add(body)

    def _consume(self) -> None:
        while len(self.acknowledged) < MESSAGES and time.monotonic() < self._deadline:
            try:
                received = self._clients.pull(self.subscription, count=7, wait_s=2)
            except OUTAGE:
                time.sleep(0.02)
                continue
            ids = {one.message.message_id for one in received}
            with self._lock:
                self.came_back |= ids & self._confirmed
            if received:
                # Also one whose answer was lost is acknowledged: ask until there is an answer.
                self._until_confirmed(functools.partial(self._clients.acknowledge, self.subscription, *received))
            with self._lock:
                self._confirmed |= ids
                self.acknowledged.update(one.message.data for one in received)

    def _until_confirmed(self, call: Callable[[], object]) -> None:
        while time.monotonic() < self._deadline:
            try:
                call()
                return
            except OUTAGE:
                time.sleep(0.02)
        raise TimeoutError("the gateway did not come back")


def _check_through(traffic: Traffic, disturb: Callable[[], None]) -> None:
    traffic.start()
    for nth in range(1, DISTURBANCES + 1):
        wanted = nth * MESSAGES // (DISTURBANCES + 1)
        deadline = time.monotonic() + 60
        while traffic.done < wanted and time.monotonic() < deadline:
            time.sleep(0.005)
        disturb()
    traffic.join()
    assert len(traffic.published) == MESSAGES
    assert traffic.published <= traffic.acknowledged  # nothing lost
    assert traffic.came_back == set()  # nothing acknowledged came again


def test_nothing_confirmed_is_lost_when_the_gateway_is_killed(
    own_gateway: GatewayProcess, clients_of: Callable[[str], Clients]
) -> None:
    def kill_and_restart() -> None:
        own_gateway.kill()
        own_gateway.start()

    _check_through(Traffic(clients_of(own_gateway.address)), kill_and_restart)


def test_nothing_confirmed_is_lost_when_postgresql_crashes(
    tmp_path: Path, clients_of: Callable[[str], Clients]
) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres", tuning=TEST_TUNING)
    server.start()
    database = Database(server.url())
    migrate_database(database)
    gateway = GatewayProcess(database, tmp_path / "gateway.log")
    gateway.start()

    def crash_and_restart() -> None:
        server.crash()
        server.restart_on_same_port()

    try:
        _check_through(Traffic(clients_of(gateway.address)), crash_and_restart)
    finally:
        gateway.stop()
        server.stop()


def test_a_clean_stop_ends_streams_and_frees_their_messages(
    own_gateway: GatewayProcess, clients_of: Callable[[str], Clients]
) -> None:
    clients = clients_of(own_gateway.address)
    topic = clients.topic()
    subscription = clients.subscription(topic, ack_deadline_seconds=600)
    clients.publish(topic, b"one")
    stream = RawStream(clients, subscription)
    assert len(stream.messages(1)) == 1
    stopped_at = time.monotonic()
    assert own_gateway.stop() == 0
    assert time.monotonic() - stopped_at < 8
    with pytest.raises(exceptions.ServiceUnavailable, match="stopping"):
        stream.next()
    stream.cut()
    own_gateway.start()
    assert clients.bodies(subscription) == [b"one"]


def test_two_gateways_on_one_database_share_a_subscription(
    own_gateway: GatewayProcess, database: Database, tmp_path: Path, clients_of: Callable[[str], Clients]
) -> None:
    other = GatewayProcess(database, tmp_path / "other.log")
    other.start()
    try:
        here, there = clients_of(own_gateway.address), clients_of(other.address)
        topic = here.topic()
        subscription = there.subscription(topic, enable_message_ordering=True)
        bodies = [f"{n}".encode() for n in range(60)]
        for body in bodies:
            (here if int(body) % 2 else there).publish(topic, body, ordering_key=f"{int(body) % 5}")
        seen: list[bytes] = []
        while len(seen) < 60:
            for pulling, acknowledging in ((here, there), (there, here)):
                received = pulling.pull(subscription, count=10, wait_s=5)
                seen += [one.message.data for one in received]
                if received:
                    acknowledging.acknowledge(subscription, *received)
        assert sorted(seen) == sorted(bodies)
        for key in range(5):
            of_key = [int(body) for body in seen if int(body) % 5 == key]
            assert of_key == sorted(of_key)
    finally:
        other.stop()
