"""`clientmgr pubsub-gateway` as a process: it says where it is, serves its metrics, and stops when told to."""

import contextlib
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.cloud import pubsub_v1

from clientmgr.base.database import Database, Role
from clientmgr.local.embedded.server import free_port
from tests.cli.calling import Cli
from tests.cli.conftest import CLIENTMGR
from tests.waiting import eventually


@contextlib.contextmanager
def gateway(
    database: Database, folder: Path, *arguments: str, **settings: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The running command and the first line that it prints."""
    environment = {**os.environ, "DATABASE_URL": database.url, "DATA_DIR": str(folder), **settings}
    with (
        (folder / "gateway.log").open("w") as log,
        subprocess.Popen(
            [CLIENTMGR, "pubsub-gateway", *arguments], env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def fetch(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_gateway_prints_what_clients_need_and_stops_cleanly(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    with gateway(database, tmp_path, "--port", "0") as (process, line):
        variable, _, address = line.removeprefix("export ").partition("=")
        assert variable == "PUBSUB_EMULATOR_HOST"
        monkeypatch.setenv(variable, address)
        with pubsub_v1.PublisherClient() as publisher:
            topic = publisher.topic_path("client-manager", "orders")
            publisher.create_topic(name=topic)
            assert publisher.publish(topic, b"{}").result(30)
        process.send_signal(number)
        assert process.wait(30) == 0, (tmp_path / "gateway.log").read_text()


def test_what_was_published_through_it_is_counted(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    with gateway(database, tmp_path, "--port", "0", METRICS_PORT=str(port)) as (_, line):
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", line.partition("=")[2])
        with pubsub_v1.PublisherClient() as publisher:
            topic = publisher.topic_path("client-manager", "orders")
            publisher.create_topic(name=topic)
            for _ in range(3):
                publisher.publish(topic, b"{}").result(30)
        assert 'clientmgr_messages_published_total{topic="orders"} 3.0' in fetch(port, "/metrics")[1]


def test_metrics_with_everybodys_lag_and_health_are_served_where_a_port_is_set(
    database: Database, tmp_path: Path
) -> None:
    port = free_port()
    with database.connect(Role.OWNER) as connection:
        connection.execute(
            "INSERT INTO clientmgr.consumer_offsets (group_id, topic_id, partition_id, next_offset) "
            "VALUES ('g', 1, 0, 1)"
        )
    with gateway(database, tmp_path, "--port", "0", METRICS_PORT=str(port)):
        assert fetch(port, "/healthz") == (200, "ok")
        assert fetch(port, "/other")[0] == 404
        lag = 'clientmgr_subscription_lag_messages{subscription="g",topic="outbox"} 0.0'
        eventually(lambda: lag in fetch(port, "/metrics")[1], "the lag is told")
        tenants = 'clientmgr_tenants{status="active"} 0.0'
        eventually(lambda: tenants in fetch(port, "/metrics")[1], "the tenants are told")


def test_a_port_that_is_taken_is_a_setting_to_change(database: Database, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with gateway(database, tmp_path, "--port", port) as (process, _):
            assert process.wait(60) == 2
    assert "PUBSUB_GATEWAY_PORT" in (tmp_path / "gateway.log").read_text()


def test_what_is_published_to_pubsub_is_copied_into_the_log(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gateway(database, tmp_path, "--port", "0") as (_, line):
        address = line.partition("=")[2]
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", address)
        elsewhere = Cli.on(
            database, tmp_path, BROKER="pubsub", PUBSUB_PROJECT="elsewhere", PUBSUB_EMULATOR_HOST=address
        )
        elsewhere.ok("publish", "orders", "--create", "-", stdin=b"")
        with pubsub_v1.SubscriberClient() as subscriber:
            subscriber.create_subscription(
                name=subscriber.subscription_path("elsewhere", "orders-sub"), topic="projects/elsewhere/topics/orders"
            )
        elsewhere.ok("publish", "orders", "-", "-a", "a=b", stdin=b'{"customerId":1}\n{"customerId":2}\n')
        elsewhere.ok("bridge", "orders-sub=copied-orders", "--burst")
        assert elsewhere("bridge", "no-such-sub", "--burst").code == 1
    copied = Cli.on(database, tmp_path).ok("tail", "copied-orders", "--from-start", "--burst", "--json").json_lines
    assert sorted((message["tenant"], message["attributes"]["a"]) for message in copied) == [("1", "b"), ("2", "b")]
