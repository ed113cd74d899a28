"""The run launcher of dagster.yaml: Dagster's own, which also knows whether a run's process lives.

Dagster's monitoring asks it every few seconds about each run that has started. What it calls FAILED is failed, frees
its place in the queue and its pools, and is started again if its tags say so.
"""

import json
import time
from collections.abc import Mapping
from typing import Any, Self

import dagster as dg
from dagster._config import UserConfigSchema
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.launcher.base import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._core.launcher.default_run_launcher import DefaultRunLauncher
from dagster._core.storage.tags import GRPC_INFO_TAG, MAX_RETRIES_TAG
from dagster._grpc.client import DagsterGrpcClient
from dagster._grpc.types import CanCancelExecutionRequest, CanCancelExecutionResult
from dagster._serdes import ConfigurableClassData, deserialize_value

from clientmgr_dagster.runs.worker import WORKER_TAG, RunLock, noted_worker

ANSWER_WITHIN_S = 5
LOST_AFTER_S = 25
"""Longer than a run's process takes to come back to a database that was restarted."""


class WatchedRunLauncher(DefaultRunLauncher):
    """Starts and stops runs as Dagster's own does: by the code server, whether a gRPC server or one of a module."""

    def __init__(self, inst_data: ConfigurableClassData | None = None, lost_after_seconds: int = LOST_AFTER_S) -> None:
        super().__init__(inst_data)
        self._lost_after_s = lost_after_seconds
        self._lost_since: dict[str, float] = {}

    @classmethod
    def config_type(cls) -> UserConfigSchema:
        return {
            "lost_after_seconds": dg.Field(
                int,
                default_value=LOST_AFTER_S,
                description="How long a run on another machine must be without any sign of life to count as gone.",
            )
        }

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]) -> Self:
        return cls(inst_data, **config_value)

    def launch_run(self, context: LaunchRunContext) -> None:
        """A run that is tried again has the tags of the one before it. That one's process is not its own."""
        if WORKER_TAG in context.dagster_run.tags:
            self._instance.add_run_tags(context.dagster_run.run_id, {WORKER_TAG: ""})
        super().launch_run(context)

    def lost_while_it_started(self, run: dg.DagsterRun) -> bool:
        """Whether a run that should have started by now has no process. Only its code server knows, if it answers.

        One that starts after all ends before its first step: `runs/watch.py` sees that it was given up.
        """
        return GRPC_INFO_TAG not in run.tags or self._code_server_runs(run) is False

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """RUNNING until there is proof that the process is gone. A frozen one is not gone."""
        worker = noted_worker(run.tags)
        if worker is not None and worker.is_here():
            if worker.lives():
                return CheckRunHealthResult(WorkerStatus.RUNNING)
            return _gone(f"its process (pid: {worker.pid}) is gone")
        held = RunLock(self._instance, run.run_id).is_held()
        known_to_code_server = None if held else self._code_server_runs(run)
        # A run that noted no process never held the lock: only its code server can tell.
        has_proof = known_to_code_server is False or (worker is not None and held is False)
        if held or known_to_code_server or not has_proof:
            self._lost_since.pop(run.run_id, None)
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        silent_s = time.monotonic() - self._lost_since.setdefault(run.run_id, time.monotonic())
        if silent_s < self._lost_after_s:
            return CheckRunHealthResult(WorkerStatus.RUNNING, f"no sign of life for {silent_s:.0f} s")
        del self._lost_since[run.run_id]
        return _gone(f"its process, on another machine, gave no sign of life for {silent_s:.0f} s")

    def terminate(self, run_id: str) -> bool:
        """Stop a run. One that somebody stopped is never started again by itself."""
        run = self._instance.get_run_by_id(run_id)
        # Monitoring marks a run as CANCELING before it stops it for its age. That one may be started again.
        if run is not None and not run.is_finished and run.status is not dg.DagsterRunStatus.CANCELING:
            self._instance.add_run_tags(run_id, {MAX_RETRIES_TAG: "0"})
        try:
            return bool(super().terminate(run_id))  # type: ignore[no-untyped-call]  # Dagster's
        except DagsterUserCodeUnreachableError:
            self._instance.report_engine_event(
                "The code server does not answer. The run's process sees for itself that it is to stop.",
                run,
                cls=self.__class__,
            )
            return True

    def _code_server_runs(self, run: dg.DagsterRun) -> bool | None:
        """Whether the code server that started the run has its process. None: it does not answer."""
        try:
            address = json.loads(run.tags[GRPC_INFO_TAG])
            client = DagsterGrpcClient(
                port=address.get("port"),
                socket=address.get("socket"),
                host=address.get("host"),
                use_ssl=bool(address.get("use_ssl", False)),
            )
            answer = client.can_cancel_execution(CanCancelExecutionRequest(run_id=run.run_id), timeout=ANSWER_WITHIN_S)
        except (KeyError, ValueError, DagsterUserCodeUnreachableError):
            return None
        return deserialize_value(answer, CanCancelExecutionResult).can_cancel


def _gone(why: str) -> CheckRunHealthResult:
    return CheckRunHealthResult(WorkerStatus.FAILED, why)
