"""The daemons as processes: bursts end by themselves, SIGTERM drains, the second signal forces, health is answered."""

import json
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.broker.gateway.server import Gateway
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.contracts import topics
from clientmgr.local.embedded.server import free_port
from tests.streaming.processes import worker
from tests.streaming.rig import Rig, event, until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def log_rig(
    anyio_backend: str, database: Database, settings_for: Callable[[Database], Settings]
) -> AsyncIterator[Rig]:
    """The PostgreSQL log: how a process starts and ends does not depend on the transport."""
    settings = settings_for(database)
    async with PostgresBroker(database, settings) as broker:
        rig = Rig(settings, database, broker)
        rig.activate(7)
        yield rig


def is_in_hand(rig: Rig) -> bool:
    """Whether a worker waits for the lock that a test holds."""
    return bool(rig.query("SELECT FROM pg_locks WHERE NOT granted AND locktype IN ('relation', 'advisory')"))


async def test_a_burst_works_off_what_is_there_and_exits_with_0(log_rig: Rig, tmp_path: Path) -> None:
    await log_rig.publish(*(event(client=f"c{n}") for n in range(30)), event() | {"clientId": 5})
    with worker(log_rig.settings, tmp_path, "writer", "--burst") as process:
        assert process.wait() == 0, process.log

    assert len(log_rig.devices()) == 30
    assert len(log_rig.errors) == 1


async def test_several_daemons_burst_in_one_process_each_with_its_options(log_rig: Rig, tmp_path: Path) -> None:
    await log_rig.publish(*(event(client=f"c{n}") for n in range(30)))
    several = ("republisher", "--burst", "push-token-status", "-t", "push", "--burst", "contact-deletion", "--burst")
    with worker(log_rig.settings, tmp_path, "writer", "--burst", *several) as process:
        assert process.wait() == 0, process.log

    assert len(log_rig.devices()) == 30
    records = map(json.loads, process.log.splitlines())
    stopped = {record["clientmgr"]["daemon"]: record for record in records if record["message"] == "daemon stopped"}
    assert set(stopped) == {"writer", "republisher", "push-token-status", "contact-deletion"}
    assert all(record["process.name"] == name for name, record in stopped.items())


async def test_a_burst_on_pubsub_works_off_what_is_there_and_exits_with_0(log_rig: Rig, tmp_path: Path) -> None:
    async with Gateway(log_rig.settings.model_copy(update={"pubsub_gateway_port": 0}), log_rig.database) as gateway:
        await log_rig.publish(*(event(client=f"c{n}") for n in range(30)))
        settings = log_rig.settings.model_copy(update={"broker": "pubsub", "pubsub_emulator_host": gateway.address})
        with worker(settings, tmp_path, "writer", "--burst") as process:
            await until(lambda: not process.running, "the burst ended")
            assert process.wait() == 0, process.log

    assert len(log_rig.devices()) == 30


async def test_sigterm_lets_the_batch_in_hand_finish(log_rig: Rig, tmp_path: Path) -> None:
    settings = log_rig.settings.model_copy(update={"writer_lock_timeout_ms": 60_000})
    await log_rig.publish(event())
    with worker(settings, tmp_path, "writer") as process:
        with log_rig.database.connect(Role.OWNER) as locking:
            locking.execute("LOCK TABLE tenant_7.devices IN ACCESS EXCLUSIVE MODE")
            await until(lambda: is_in_hand(log_rig), "the writer has the event in hand")
            process.send(signal.SIGTERM)
        assert process.wait() == 0
        assert "daemon stopped" in process.log

    assert log_rig.devices().keys() == {"c1"}
    assert log_rig.retries == []


async def test_what_does_not_finish_in_time_is_rolled_back_and_not_lost(log_rig: Rig, tmp_path: Path) -> None:
    settings = log_rig.settings.model_copy(update={"writer_lock_timeout_ms": 60_000, "shutdown_timeout_s": 0.3})
    await log_rig.publish(event())
    with log_rig.database.connect(Role.OWNER) as locking:
        locking.execute("LOCK TABLE tenant_7.devices IN ACCESS EXCLUSIVE MODE")
        with worker(settings, tmp_path, "writer") as process:
            await until(lambda: is_in_hand(log_rig), "the writer has the event in hand")
            process.send(signal.SIGTERM)
            assert process.wait() == 0
            assert "not drained in time" in process.log

    with worker(log_rig.settings, tmp_path, "writer", "--burst") as process:
        assert process.wait() == 0
    assert log_rig.devices().keys() == {"c1"}


async def test_the_second_signal_ends_it_at_once(log_rig: Rig, tmp_path: Path) -> None:
    settings = log_rig.settings.model_copy(update={"writer_lock_timeout_ms": 60_000, "shutdown_timeout_s": 60.0})
    await log_rig.publish(event())
    with log_rig.database.connect(Role.OWNER) as locking:
        locking.execute("LOCK TABLE tenant_7.devices IN ACCESS EXCLUSIVE MODE")
        with worker(settings, tmp_path, "writer") as process:
            await until(lambda: is_in_hand(log_rig), "the writer has the event in hand")
            process.send(signal.SIGTERM)
            # It has taken the first one when it no longer looks after SIGTERM itself.
            await until(lambda: not _handles(process.pid, signal.SIGTERM), "the first signal was taken")
            process.send(signal.SIGTERM)
            assert process.wait(10) == -signal.SIGTERM


async def test_health_and_metrics_are_answered(log_rig: Rig, tmp_path: Path) -> None:
    settings = log_rig.settings.model_copy(update={"metrics_port": free_port()})
    await log_rig.publish(event())
    with worker(settings, tmp_path, "writer") as process:
        await until(lambda: bool(log_rig.devices()), "the event is written")
        address = f"http://127.0.0.1:{settings.metrics_port}"
        assert _get(f"{address}/healthz") == "ok"
        assert topics.WRITER in _get(f"{address}/metrics")
        with pytest.raises(urllib.error.HTTPError):
            _get(f"{address}/nothing")
        process.send(signal.SIGTERM)
        assert process.wait() == 0


async def test_an_error_topic_is_counted_from_nothing_so_that_the_first_error_is_growth(
    log_rig: Rig, tmp_path: Path
) -> None:
    settings = log_rig.settings.model_copy(update={"metrics_port": free_port()})
    await log_rig.publish(event())
    with worker(settings, tmp_path, "writer"):
        await until(lambda: bool(log_rig.devices()), "the event is written")
        told = _get(f"http://127.0.0.1:{settings.metrics_port}/metrics").splitlines()
        assert f'clientmgr_messages_published_total{{topic="{topics.WRITER_ERRORS}"}} 0.0' in told


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310  # our own daemon
        text: str = response.read().decode()
        return text


def _handles(pid: int, number: signal.Signals) -> bool:
    """Whether the process catches a signal, from the mask that the kernel keeps of it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False
