"""Plain HTTP on the port of gRPC: health checks are answered, all else is told that there is no REST."""

import http.client
import socket
import urllib.request

import pytest

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
