"""The code server as a process of its own: whose children its runs are, and what becomes of them when it ends."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest
from dagster._cli.job import execute_launch_command
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.storage.tags import RUN_FAILURE_REASON_TAG
from dagster._grpc.client import DagsterGrpcClient
from dagster_shared.cli import WorkspaceOpts

from clientmgr.operations.code_server_socket import wait_until_code_server_listens
from tests.process_table import listens_on, running, wait_until_gone, with_descendants
from tests.waiting import eventually

pytestmark = pytest.mark.server

CODE = """
import os, pathlib, sys, time
import dagster as dg

imported = set()
os.register_at_fork(after_in_child=lambda: imported.update(sys.modules))

def packages(modules):
    return {name.partition(".")[0] for name in modules}

@dg.op(config_schema={"until": str})
def wait(context):
    while not pathlib.Path(context.op_config["until"]).exists():
        time.sleep(0.02)
    pathlib.Path(context.op_config["until"]).write_text(" ".join(packages(sys.modules) - packages(imported)))

@dg.job
def waiting():
    wait()

defs = dg.Definitions(jobs=[waiting], executor=dg.in_process_executor)
"""
WITHOUT_A_QUEUE = """
run_coordinator: {module: dagster._core.run_coordinator, class: DefaultRunCoordinator}
telemetry: {enabled: false}
"""


@dataclass
class Served:
    """A code server with one job, and an instance to launch it on."""

    folder: Path
    process: "subprocess.Popen[bytes]"
    instance: dg.DagsterInstance

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

    def launch(self) -> str:
        """A run that lasts until `release`."""
        run = execute_launch_command(
            instance=self.instance,
            workspace_opts=WorkspaceOpts(workspace=(str(self.folder / "workspace.yaml"),)),
            config_json=json.dumps({"ops": {"wait": {"config": {"until": str(self.folder / "released")}}}}),
            job_name="waiting",
        )
        return str(run.run_id)

    def release(self) -> None:
        (self.folder / "released").touch()

    def imported_by_the_run(self) -> set[str]:
        """The packages of which nothing was imported before it was forked."""
        return set((self.folder / "released").read_text().split())

    def is_started(self, run_id: str) -> bool:
        return any(event.event_type == dg.DagsterEventType.STEP_START for event in self._events(run_id))

    def run(self, run_id: str) -> dg.DagsterRun:
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        return run

    def forked_from(self) -> psutil.Process:
        """It is a fork itself, and has the code server's command line, as its own forks have."""
        server = psutil.Process(self.process.pid)
        (parent,) = [one for one in server.children() if one.cmdline() == server.cmdline()]
        return parent

    def _events(self, run_id: str) -> list[dg.DagsterEvent]:
        return [entry.dagster_event for entry in self.instance.all_logs(run_id) if entry.dagster_event]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], Served]]:
    (tmp_path / "one_job.py").write_text(CODE)
    (tmp_path / "dagster.yaml").write_text(WITHOUT_A_QUEUE)
    location = {"grpc_server": {"socket": str(tmp_path / "socket"), "location_name": "one"}}
    (tmp_path / "workspace.yaml").write_text(json.dumps({"load_from": [location]}))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path.cwd()}"}
    command = [sys.executable, "-m", "clientmgr_dagster.code_server", str(tmp_path / "socket")]
    # Whoever starts it may ignore what its runs are ended by: that is inherited.
    command = ["sh", "-c", "trap '' TERM; exec \"$@\"", "sh", *command]
    started: list[subprocess.Popen[bytes]] = []

    def start(patience_s: float) -> Served:
        options = ["--module", "one_job", "--location", "one", "--log-level", "warning", "--patience", str(patience_s)]
        started.append(subprocess.Popen([*command, *options], env=environment))
        client = DagsterGrpcClient(socket=str(tmp_path / "socket"))
        eventually((tmp_path / "socket").exists, "it listens")
        eventually(lambda: client.health_check_query() == "SERVING", "it answers")  # type: ignore[no-untyped-call]
        return Served(tmp_path, started[-1], instance)

    with dg.DagsterInstance.get() as instance:
        yield start
    for process in started:
        process.kill()
        process.wait()


def test_runs_are_forks_of_a_process_with_one_thread_and_a_stopping_server_waits_for_them(
    serve: Callable[[float], Served],
) -> None:
    served = serve(120)
    assert stat.S_IMODE(served.socket.stat().st_mode) & 0o077 == 0, "nobody else may open it"
    run_id = served.launch()
    eventually(lambda: served.is_started(run_id), "it runs")
    parent = served.forked_from()
    assert parent.num_threads() == 1, "else a fork could find a lock held by a thread that is not there"
    assert len(running(parent.children())) == 1
    assert not listens_on(with_descendants(served.process.pid))

    served.process.send_signal(signal.SIGTERM)
    eventually(lambda: refused(served), "no new runs: whoever asks finds it away, and asks again")
    assert served.run(run_id).status == dg.DagsterRunStatus.STARTED
    served.release()

    assert served.process.wait(60) == 0
    assert served.run(run_id).status == dg.DagsterRunStatus.SUCCESS
    assert served.imported_by_the_run() == set(), "NEEDED_BY_EVERY_RUN says what is to be imported before the fork"


def refused(served: Served) -> bool:
    try:
        served.launch()
    except DagsterUserCodeUnreachableError:
        return True
    return False


def test_a_run_that_outlasts_the_server_s_patience_fails_as_one_that_dagster_starts_again(
    serve: Callable[[float], Served],
) -> None:
    served = serve(0.1)
    run_id = served.launch()
    eventually(lambda: served.is_started(run_id), "it runs")

    served.process.send_signal(signal.SIGTERM)

    assert served.process.wait(60) == 0
    run = served.run(run_id)
    assert run.status == dg.DagsterRunStatus.FAILURE
    assert run.tags[RUN_FAILURE_REASON_TAG] == "UNEXPECTED_TERMINATION"


def test_a_killed_server_s_runs_do_not_go_on_without_it(serve: Callable[[float], Served]) -> None:
    served = serve(120)
    run_id = served.launch()
    eventually(lambda: served.is_started(run_id), "it runs")
    descendants = with_descendants(served.process.pid)[1:]

    served.process.kill()

    wait_until_gone(descendants)
    assert served.run(run_id).status == dg.DagsterRunStatus.FAILURE


def test_who_needs_a_server_that_starts_along_with_it_begins_when_it_listens(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    assert not wait_until_code_server_listens(path, longest_s=0), "there is none"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        assert not wait_until_code_server_listens(path, longest_s=0), "its file is there, and nobody answers"
        awaited = [sys.executable, "-m", "clientmgr_dagster.code_server.awaited", str(path)]
        command = subprocess.Popen([*awaited, sys.executable, "-c", "raise SystemExit(7)"])
        waiting = threading.Thread(target=wait_until_code_server_listens, args=(path,))
        waiting.start()
        assert waiting.is_alive()
        assert command.poll() is None

        server.listen()

        waiting.join(60)
        assert not waiting.is_alive()
        assert command.wait(60) == 7, "it becomes the command"
