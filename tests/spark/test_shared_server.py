"""The Spark server that all runs share: started by the first, stopped when nobody uses it, replaced when it dies."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest

from clientmgr.base.settings import Settings, load_settings
from clientmgr.local.embedded.server import LOOPBACK, free_port
from clientmgr.local.shared_spark.activator import Activator
from tests.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]
TOKEN = "a-token-that-only-runs-know"

# A run: a session of its own, named after it, and a temporary view that no other run sees. Its step is tried again.
RUN = """
import sys, dagster as dg
from clientmgr_dagster.spark.session import APPLICATION_TAG, UI_TAG, SparkResource
from pyspark.sql.types import LongType
from pyspark.sql import functions as F

HOLD = sys.argv[1] + ".hold"

@dg.asset(retry_policy=dg.RetryPolicy(max_retries=3))
def counted(context: dg.AssetExecutionContext, spark: SparkResource) -> None:
    session = spark.spark_session
    assert [policy.max_backoff for policy in session.client.get_retry_policies()] == [5_000], "no minutes of idle sleep"
    assert not session.catalog.tableExists("mine")
    # In one task: the server has a core for the other run.
    session.range(0, 4, 1, 1).createOrReplaceTempView("mine")

    @F.udf(LongType())
    def slow(number):
        import os, time
        while os.path.exists(HOLD): time.sleep(0.05)
        return number * 2

    print("working", flush=True)
    assert session.table("mine").select(F.sum(slow("id"))).first()[0] == 12

with dg.DagsterInstance.ephemeral() as instance:
    result = dg.materialize([counted], instance=instance, resources={"spark": SparkResource()}, raise_on_error=False)
    tags = instance.get_run_by_id(result.run_id).tags
    print("RESULT", result.success, tags.get(APPLICATION_TAG), tags.get(UI_TAG), result.run_id, flush=True)
"""


def _listening() -> set[int]:
    connections = psutil.Process().net_connections(kind="tcp")
    return {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}


class Shared:
    """The activator in a thread, and runs as processes."""

    def __init__(self, folder: Path, **more: object) -> None:
        self.port = free_port()
        self.settings: Settings = load_settings(
            data_dir=folder,
            spark_connect_url=f"sc://localhost:{self.port}",
            spark_connect_token=TOKEN,
            spark_master="local[2]",
            spark_partitions=2,
            spark_shared_memory="512m",
            **more,
        )
        self.hold = folder / "first"
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self.activator = Activator(self.settings)
        self._thread = threading.Thread(target=self._run)
        self._runs: list[subprocess.Popen[str]] = []

    def _run(self) -> None:
        self._loop.run_until_complete(self.activator.run(self.port, self._stop))

    def __enter__(self) -> "Shared":
        self._thread.start()
        # Looked up, not tried: whoever connects has the server started.
        eventually(lambda: self.port in _listening(), "the activator listens")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()
        for run in self._runs:
            run.kill()
            run.communicate()

    def run(self, name: Path | None = None) -> "subprocess.Popen[str]":
        environment = {**os.environ, **self.settings.environment()}
        run = subprocess.Popen(
            [sys.executable, "-c", RUN, str(name or self.hold.with_name("nobody"))],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._runs.append(run)
        return run

    def jvms(self) -> list[int]:
        """Processes that have this server's folder in their command line."""
        mine = str(self.settings.data_dir / "spark" / "server.properties")
        return [pid for pid, line in command_lines() if mine in line and "java" in line and "guardian" not in line]


def command_lines() -> Iterator[tuple[int, str]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def outcome(run: "subprocess.Popen[str]") -> list[str]:
    output, errors = run.communicate(timeout=300)
    lines = [line for line in output.splitlines() if line.startswith("RESULT")]
    assert lines, errors[-3000:]
    return lines[0].split()[1:]


def test_runs_share_a_server_that_may_die_under_them(tmp_path: Path) -> None:
    with Shared(tmp_path) as shared:
        assert shared.jvms() == []  # nobody has asked for it yet

        hold = Path(f"{shared.hold}.hold")
        hold.touch()
        at_work = shared.run(shared.hold)
        assert at_work.stdout is not None
        assert at_work.stdout.readline() == "working\n"

        # Another one beside it, undisturbed.
        success, application, page, run_id = outcome(shared.run())

        assert success == "True"
        assert page.startswith("http://127.0.0.1:")
        assert page.endswith(f"/connect/session/?id={run_id}")
        (server,) = shared.jvms()
        assert "-XX:TieredStopAtLevel=1" in dict(command_lines())[server], "most of a short job is the start of a JVM"
        own_settings = shared.settings.environment().keys() - {"JAVA_HOME"}
        started_with = (Path("/proc") / str(server) / "environ").read_text(errors="replace")
        assert not [name for name in own_settings if f"\0{name}=" in started_with]
        for port in listening_ports(server):
            assert port[0] in ("127.0.0.1", "::ffff:127.0.0.1"), port

        # The server is killed while the first is still at work.
        os.kill(server, signal.SIGKILL)
        hold.unlink()
        success, another, *_ = outcome(at_work)
        assert success == "True"
        assert another != application
        assert shared.jvms() not in ([], [server])
    assert shared.jvms() == []


def test_a_server_that_nobody_uses_or_that_is_frozen_is_stopped_and_others_are_not_let_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Shared(tmp_path, spark_shared_idle_s=0.5) as shared:
        # Who only connects has it started, too; it is there as long as the connection is.
        with connected(shared) as connection:
            refused = subprocess.run(
                [sys.executable, "-c", WITH_ANOTHER_TOKEN, shared.settings.spark_connect_url],
                capture_output=True,
                text=True,
                timeout=150,
                check=False,
            )
            assert "UNAUTHENTICATED" in refused.stdout, refused.stderr[-2000:]
            (server,) = shared.jvms()
            with monkeypatch.context() as impatient:
                impatient.setattr("clientmgr.local.shared_spark.server.ANSWER_WITHIN_S", 1.0)
                impatient.setattr("clientmgr.local.shared_spark.activator.LOOK_EVERY_S", 0.1)
                os.kill(server, signal.SIGSTOP)
                eventually(lambda: server not in shared.jvms(), "the frozen server is gone")
            while connection.recv(4096):
                pass  # told that it is over
        with connected(shared):
            assert len(shared.jvms()) == 1
        eventually(lambda: shared.jvms() == [], "the idle server is gone")


@contextlib.contextmanager
def connected(shared: Shared) -> Iterator[socket.socket]:
    """A connection on which the server has said something."""
    with socket.create_connection((LOOPBACK, shared.port)) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000"))
        connection.settimeout(150)
        assert connection.recv(9)
        yield connection


def test_a_page_in_this_machines_browser_has_no_server_started(tmp_path: Path) -> None:
    with Shared(tmp_path) as shared, socket.create_connection((LOOPBACK, shared.port)) as page:
        page.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
        page.settimeout(60)
        assert page.recv(1) == b""
    # Whatever was about to start has been started and stopped by now.
    assert not (tmp_path / "spark" / "server.log").exists()


WITH_ANOTHER_TOKEN = """
import os, sys
os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = "another"
from pyspark.sql import SparkSession
try:
    SparkSession.builder.remote(sys.argv[1]).create().range(1).count()
except Exception as error:
    print(error)
"""


def listening_ports(pid: int) -> list[tuple[str, int]]:
    """Addresses and ports that a process listens on."""
    inodes = set()
    for descriptor in (Path("/proc") / str(pid) / "fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(str(descriptor.readlink()))
    found = []
    for family, size in (("tcp", 4), ("tcp6", 16)):
        for line in Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                address, port = fields[1].split(":")
                raw = b"".join(bytes.fromhex(address[i : i + 8])[::-1] for i in range(0, 2 * size, 8))
                name = socket.inet_ntop(socket.AF_INET if size == 4 else socket.AF_INET6, raw)
                found.append((name, int(port, 16)))
    return found
