"""What `up` decides before it starts: which ports, and what a signal means."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clientmgr.base.errors import EmbeddedServerError
from clientmgr.base.settings import Settings, load_settings
from clientmgr.local.processes.system import choose_ports, stop_on_signals
from tests.processes.conftest import Records

REPOSITORY = Path(__file__).parent.parent.parent


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_port_that_was_asked_for_and_is_taken_is_refused_by_name(taken_port: int) -> None:
    with pytest.raises(
        EmbeddedServerError, match=rf"port {taken_port} \(DAGSTER_PORT\) can't be used: Address already"
    ):
        choose_ports(load_settings(dagster_port=taken_port))


def test_a_default_port_that_is_taken_gives_way_to_a_free_one_with_a_warning(taken_port: int, logged: Records) -> None:
    nobody_asked_for_it = Settings.model_construct(_fields_set=set(), dagster_port=taken_port)
    chosen = choose_ports(nobody_asked_for_it)
    assert chosen.dagster_port not in (0, taken_port)
    assert logged()[0]["clientmgr"] == {
        "setting": "DAGSTER_PORT",
        "port": taken_port,
        "chosen": chosen.dagster_port,
    }


def test_port_0_is_a_free_one() -> None:
    assert choose_ports(load_settings(dagster_port=0)).dagster_port > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_for_a_stop(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_on_signals() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(timeout=60)
    assert signal.getsignal(number) is before


def test_no_signal_no_stop() -> None:
    with stop_on_signals() as stop:
        pass
    assert not stop.is_set()


WAITS_FOR_EVER = """
import threading
from clientmgr.local.processes.system import stop_on_signals

with stop_on_signals() as stop:
    print("ready", flush=True)
    stop.wait()
    print("stopping", flush=True)
    threading.Event().wait()
"""


def test_the_second_signal_ends_at_once() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS_FOR_EVER], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as output:
        assert output.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert output.readline() == "stopping\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == -signal.SIGINT
