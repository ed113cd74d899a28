"""Real runs in real processes: a code server that can be killed, Dagster's storage, and its daemon's work, by hand."""

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.events import DagsterEventType
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import GrpcServerTarget
from dagster._daemon.auto_run_reexecution.auto_run_reexecution import consume_new_runs_for_automatic_reexecution
from dagster._daemon.monitoring.run_monitoring import execute_run_monitoring_iteration
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon
from dagster._grpc.client import DagsterGrpcClient
from dagster_graphql.schema import create_schema

from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.contracts import daemons
from clientmgr.local.processes.programs import dagster_environment
from clientmgr_dagster.defs.operations.lost_starts import lost_start_sensor
from clientmgr_dagster.runs.worker import Worker, noted_worker
from tests.waiting import eventually

LOCATION = {"repositoryLocationName": "client_manager", "repositoryName": "__repository__"}
LAUNCH = """
mutation($params: ExecutionParams!) {
  launchRun(executionParams: $params) { __typename ... on LaunchRunSuccess { run { runId } } ... on Error { message } }
}
"""
TERMINATE = """
mutation($id: String!, $policy: TerminateRunPolicy) {
  terminateRun(runId: $id, terminatePolicy: $policy) { __typename ... on Error { message } }
}
"""
QUICK = {
    "poll_interval_seconds: 15": "poll_interval_seconds: 1",
    "cancellation_thread_poll_interval_seconds: 5": "cancellation_thread_poll_interval_seconds: 1",
    "cancel_timeout_seconds: 60": "cancel_timeout_seconds: 9",
    # So that a run that holds its place is seen.
    "default_limit: 2": "default_limit: 1",
}
"""Our dagster.yaml, with the intervals of a test."""

log = logging.getLogger(__name__)


class Yard:
    """Our code location behind a gRPC server, on Dagster's PostgreSQL storage."""

    def __init__(self, database: Database, settings: Settings, folder: Path) -> None:
        self.database = database
        self._socket = str(folder / "code.sock")
        self._environment = dagster_environment(daemons.DAGSTER[0], settings, {**os.environ, **settings.environment()})
        file = Path(self._environment["DAGSTER_HOME"]) / "dagster.yaml"
        config = file.read_text()
        for ours, quick in QUICK.items():
            assert ours in config
            config = config.replace(ours, quick)
        file.write_text(config)
        self._code_server: subprocess.Popen[bytes] | None = None
        self._coordinator = QueuedRunCoordinatorDaemon(interval_seconds=1)
        self.instance: dg.DagsterInstance
        self._workspace: WorkspaceProcessContext

    @contextmanager
    def opened(self) -> Iterator["Yard"]:
        with ExitStack() as opened:
            patch = opened.enter_context(pytest.MonkeyPatch.context())
            for name in ("DAGSTER_HOME", "DAGSTER_POSTGRES_URL", "DAGSTER_ARTIFACTS_DIR"):
                patch.setenv(name, self._environment[name])
            self.instance = opened.enter_context(dg.DagsterInstance.get())
            self.start_code_server()
            opened.callback(self.kill_code_server)
            target = GrpcServerTarget(host="localhost", port=None, socket=self._socket, location_name="client_manager")
            self._workspace = opened.enter_context(WorkspaceProcessContext(self.instance, target))
            opened.enter_context(self._coordinator)
            yield self

    def start_code_server(self) -> None:
        command = [sys.executable, "-m", "dagster", "api", "grpc", "--socket", self._socket]
        module = ["--module-name", "clientmgr_dagster.definitions", "--location-name", "client_manager"]
        self._code_server = subprocess.Popen([*command, *module], env=self._environment)
        client = DagsterGrpcClient(socket=self._socket, host="localhost")
        eventually(lambda: _answers(client), "the code server answers", within_s=120)

    def kill_code_server(self) -> None:
        """Its runs live on."""
        if self._code_server is not None:
            self._code_server.kill()
            self._code_server.wait()
            self._code_server = None

    def launch(self, customer: int, *, asset: str = "orphan_deletions", **tags: str) -> str:
        """Queue a deletion of the customer's orphans: of those that were found, so that no Spark is needed."""
        deletions = [{"path": [asset]}]
        named = {"dagster/partition": str(customer), **{f"dagster/{name}": value for name, value in tags.items()}}
        params = {
            "selector": {**LOCATION, "jobName": "orphan_deletion_job", "assetSelection": deletions},
            "runConfigData": {},
            "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in named.items()]},
        }
        answer = self.ask(LAUNCH, {"params": params})["launchRun"]
        assert "run" in answer, answer
        return str(answer["run"]["runId"])

    def terminate(self, run_id: str, policy: str = "SAFE_TERMINATE") -> str:
        """As the UI does it."""
        return str(self.ask(TERMINATE, {"id": run_id, "policy": policy})["terminateRun"]["__typename"])

    def ask(self, query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        context = self._workspace.create_request_context()
        execution = create_schema().execute_async(query, variable_values=dict(variables), context_value=context)
        result = asyncio.run(execution)
        assert not result.errors, result.errors
        found: dict[str, Any] = json.loads(json.dumps(result.data))
        return found

    def dequeue(self) -> None:
        list(self._coordinator.run_iteration(self._workspace))

    def run_to_its_end(self, run_id: str) -> str:
        """Once its turn comes. Returns its status."""

        def ended() -> str:
            if self.status(run_id) == "QUEUED":
                self.dequeue()
            return self.status(run_id) if self.status(run_id) in ("SUCCESS", "FAILURE", "CANCELED") else ""

        return eventually(ended, "the run ends", within_s=120)

    def monitor(self) -> None:
        """What the daemon does at its start and every few seconds."""
        errors = [error for error in execute_run_monitoring_iteration(self._workspace, log) if error is not None]
        assert not errors, errors

    def fail_lost_starts(self) -> None:
        """What the sensor does every few seconds."""
        with dg.build_sensor_context(instance=self.instance) as context:
            assert isinstance(lost_start_sensor(context), dg.SkipReason)

    def report_starting(self, run_id: str) -> None:
        """What the daemon writes down before it asks a code server to start the run."""
        starting = dg.DagsterEvent(DagsterEventType.PIPELINE_STARTING.value, job_name="orphan_deletion_job")
        self.instance.report_dagster_event(starting, run_id=run_id)

    def start(self, run_id: str) -> None:
        """Past the queue."""
        self.instance.launch_run(run_id, self._workspace.create_request_context())

    def retry(self, run_id: str) -> str | None:
        """What the daemon does with a run that failed. Returns the id of the run it started in its place."""
        record = self.instance.get_run_record_by_id(run_id)
        assert record is not None
        list(consume_new_runs_for_automatic_reexecution(self._workspace, [record], log))
        return next((run.run_id for run in self.instance.get_runs() if run.parent_run_id == run_id), None)

    def status(self, run_id: str) -> str:
        run = self.instance.get_run_by_id(run_id)
        return "" if run is None else run.status.value

    def worker_of(self, run_id: str) -> Worker | None:
        run = self.instance.get_run_by_id(run_id)
        return noted_worker(run.tags if run is not None else {})

    def process_of(self, run_id: str) -> psutil.Process:
        """Once it has noted itself."""

        def noted() -> psutil.Process | None:
            worker = self.worker_of(run_id)
            return None if worker is None else psutil.Process(worker.pid)

        return eventually(noted, "the run's process is noted")

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with self.database.connect(Role.OWNER, autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description is not None else []


def _answers(client: DagsterGrpcClient) -> bool:
    try:
        client.ping("")
    except DagsterUserCodeUnreachableError:
        return False
    return True
