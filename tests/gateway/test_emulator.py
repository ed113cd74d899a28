"""`clientmgr pubsub-gateway --emulator` as a team's CI uses it: a process, one line, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clientmgr.cli.services import _host_and_port
from clientmgr.local.emulator import ABANDONED_AFTER_S, PREFIX, emulator_settings, remove_abandoned
from tests.gateway.conftest import Clients


@contextmanager
def emulator(temporary: Path, *options: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Its address and its process, which the test may end."""
    environment = {
        **os.environ,
        "TMPDIR": str(temporary),
        # Another application's, whose tests these are.
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing",
        "PUBSUB_GATEWAY_IDENTITIES": "/nowhere",
        "METRICS_PORT": "1",
    }
    environment.pop("LOG_LEVEL", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "clientmgr", "pubsub-gateway", "--emulator", "--port", "0", *options],
        env=environment,
        cwd=temporary,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        assert said.startswith("export PUBSUB_EMULATOR_HOST=127.0.0.1:"), process.communicate()[1]
        yield said.partition("=")[2], process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def uses(folder: Path) -> list[str]:
    """The processes whose command lines name the folder."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if str(folder) in line]


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    # PostgreSQL runs as another user where we are root.
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(folder.stat().st_mode | 0o011)
    return tmp_path


def test_it_serves_says_one_line_and_leaves_nothing_behind(
    temporary: Path, clients_of: Callable[[str], Clients]
) -> None:
    with emulator(temporary) as (address, process):
        clients = clients_of(address)
        topic = clients.topic()
        subscription = clients.subscription(topic)
        clients.publish(topic, b"1", b"2", ordering_key="a")
        assert clients.bodies(subscription) == [b"1", b"2"]
        with urllib.request.urlopen(f"http://{address}/", timeout=20) as answer:
            assert answer.status == 200
        (folder,) = temporary.glob(f"{PREFIX}*")
        assert uses(folder)
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=60)
        assert (process.returncode, rest) == (0, ("", ""))
    assert list(temporary.iterdir()) == []
    assert uses(folder) == []


def test_it_stops_while_it_starts(temporary: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "clientmgr", "pubsub-gateway", "--emulator", "--port", "0"],
        env={**os.environ, "TMPDIR": str(temporary)},
        cwd=temporary,
        stdout=subprocess.DEVNULL,
    )
    while not list(temporary.glob(f"{PREFIX}*/postgres/data*")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert list(temporary.iterdir()) == []
    assert uses(temporary) == []


def test_with_a_folder_it_keeps_its_data(temporary: Path, clients_of: Callable[[str], Clients]) -> None:
    kept = temporary / "kept"
    with emulator(temporary, "--data-dir", str(kept)) as (address, _):
        clients = clients_of(address)
        topic = clients.topic()
        subscription = clients.subscription(topic)
        clients.publish(topic, b"still here")
    with emulator(temporary, "--data-dir", str(kept)) as (address, _):
        assert clients_of(address).bodies(subscription) == [b"still here"]


def test_the_folder_of_a_killed_one_is_removed_by_the_next(tmp_path: Path) -> None:
    for age_s, name in ((ABANDONED_AFTER_S * 2, "old"), (0.0, "starting")):
        folder = tmp_path / f"{PREFIX}{name}"
        folder.mkdir()
        (folder / "lock").touch()
        os.utime(folder / "lock", (time.time() - age_s,) * 2)
    (tmp_path / "somebody-elses").mkdir()
    remove_abandoned(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{PREFIX}starting", "somebody-elses"]


def test_its_log_is_quiet_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOG_LEVEL", raising=False)
    assert emulator_settings().log_level == "warning"
    monkeypatch.setenv("LOG_LEVEL", "debug")
    assert emulator_settings().log_level == "debug"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0.0.0.0:8085", ("0.0.0.0", 8085)), (":0", ("127.0.0.1", 0)), ("[::1]:80", ("[::1]", 80))],  # noqa: S104
)
def test_host_and_port_are_taken_as_googles_emulator_takes_them(text: str, expected: tuple[str, int]) -> None:
    assert _host_and_port(text) == expected
