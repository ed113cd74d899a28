"""The gateway's door: health checks are answered, REST is refused, and connections have bounds."""

import asyncio
import http.client
import socket
import urllib.request
from collections.abc import AsyncIterator

import pytest

from clientmgr.base.database import Database
from clientmgr.base.settings import load_settings
from clientmgr.broker.gateway import front
from clientmgr.broker.gateway.server import Gateway
from tests.gateway.conftest import Clients
from tests.gateway.process import GatewayProcess


def test_get_on_the_grpc_port_says_that_it_is_healthy(gateway: GatewayProcess) -> None:
    with urllib.request.urlopen(f"http://{gateway.address}/", timeout=20) as answer:
        assert (answer.status, answer.read()) == (200, b"Ok\n")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("HEAD", "/", 200), ("GET", "/?ready", 200), ("POST", "/", 404), ("GET", "/v1/projects/p/topics", 404)],
)
def test_there_is_health_and_no_rest(gateway: GatewayProcess, method: str, path: str, status: int) -> None:
    connection = http.client.HTTPConnection(gateway.address, timeout=20)
    connection.request(method, path)
    assert connection.getresponse().status == status
    connection.close()


def test_nonsense_on_the_port_harms_nobody(gateway: GatewayProcess, clients: Clients) -> None:
    for nonsense in (b"", b"\0" * 100, b"GET /" + b"x" * 100_000, b"PRI * HTTP/2.0\r\n\r\nnonsense" * 50):
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=20) as connection:
            connection.sendall(nonsense)
    topic = clients.topic()
    subscription = clients.subscription(topic)
    clients.publish(topic, b"x" * 3_000_000, b"small")
    assert sorted(len(body) for body in clients.bodies(subscription)) == [5, 3_000_000]


@pytest.fixture
async def small(database: Database) -> AsyncIterator[Gateway]:
    """Room for ten connections, and for three from one address."""
    settings = load_settings(
        database_url=database.url,
        pubsub_gateway_port=0,
        pubsub_gateway_max_connections=10,
        pubsub_gateway_max_connections_per_address=3,
    )
    async with Gateway(settings, database) as gateway:
        yield gateway


class Line:
    """A connection from one of this machine's addresses. Each 127.0.0.x is one."""

    def __init__(self, port: int, source: str, *, speaks: bool) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20, source_address=(source, 0))
        if speaks:
            self._socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")

    def is_served(self) -> bool:
        """Waits for the first bytes of gRPC. False: the connection was closed instead."""
        try:
            return bool(self._socket.recv(1))
        except ConnectionError:
            return False

    def close(self) -> None:
        self._socket.close()


async def health(port: int) -> int:
    return await asyncio.to_thread(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20).status)


@pytest.mark.anyio
async def test_an_address_has_so_many_connections_and_the_gateway_so_many_in_all(small: Gateway) -> None:
    async def served(source: str) -> bool:
        line = await asyncio.to_thread(Line, small.port, source, speaks=True)
        open_lines.append(line)
        return await asyncio.to_thread(line.is_served)

    open_lines: list[Line] = []
    sources = [f"127.0.0.{1 + n // 3}" for n in range(10)]
    try:
        assert [await served(source) for source in sources] == [True] * 10
        assert not await served("127.0.0.2")  # its address has three
        assert not await served("127.0.0.9")  # there are ten
        open_lines[0].close()
        while not await served("127.0.0.1"):
            pass  # until the gateway has noticed
    finally:
        for line in open_lines:
            line.close()


@pytest.mark.anyio
async def test_connections_that_say_nothing_give_way_to_others(small: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "FIRST_BYTES_S", 60)  # or they would be closed for that
    silent = [await asyncio.to_thread(Line, small.port, "127.0.0.1", speaks=False) for _ in range(5)]
    try:
        assert await health(small.port) == 200
        assert not await asyncio.to_thread(silent[0].is_served)
    finally:
        for line in silent:
            line.close()
