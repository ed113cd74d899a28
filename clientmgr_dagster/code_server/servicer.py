"""Dagster's own servicer, but for how a run's process begins and how it ends with the server.

Begins: Dagster starts a new Python for each run, which imports everything anew (4 s). Here one process has imported it
once, and each run is a fork of that process: it is multiprocessing's fork server, which has one thread.
Ends: told to stop, the server takes no more runs, waits for those under way, and interrupts the rest. An interrupted
run fails by itself, in the event log too, and Dagster starts it again.
"""

import threading
import time
from collections.abc import Sequence
from multiprocessing.context import ForkServerContext
from typing import Any, Final

import grpc
from dagster._grpc.__generated__ import dagster_api_pb2
from dagster._grpc.server import DagsterApiServer
from dagster._grpc.types import CancelExecutionRequest, GetCurrentRunsResult
from dagster._serdes import deserialize_value, serialize_value

LOOK_EVERY_S: Final = 0.1


class CodeServicer(DagsterApiServer):
    """Runs are forks of one process that has imported the definitions (template.py)."""

    def __init__(self, *, runs_context: ForkServerContext, patience_s: float, **dagster_s: Any) -> None:
        """`patience_s`: how long runs under way are waited for before they are interrupted."""
        super().__init__(**dagster_s)
        self._patience_s = patience_s
        self._stopping = threading.Event()
        # Dagster has no setting for it: a test looks whose child a run is.
        self._mp_ctx = runs_context  # type: ignore[assignment]  # both are contexts

    def StartRun(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Refused while we stop. Who is told so by an answer fails the run; who does not reach us asks again."""
        if self._stopping.is_set():
            context.abort(grpc.StatusCode.UNAVAILABLE, "the code server is stopping")
        return super().StartRun(request, context)

    def ReloadCode(self, _request: Any, _context: grpc.ServicerContext) -> Any:
        """The UI's button. Runs begin with what was imported at the start: a part of it loaded anew would not do."""
        self._logger.warning("new code is loaded by a restart of the code server, see docs/dagster.md")
        return dagster_api_pb2.ReloadCodeReply()

    def cleanup(self) -> None:
        """Dagster calls it when the server is told to stop, and waits here for the last run."""
        self._stopping.set()
        give_up_at = time.monotonic() + self._patience_s
        while self.runs_under_way() and time.monotonic() < give_up_at:
            time.sleep(LOOK_EVERY_S)
        for run_id in self.runs_under_way():
            self._logger.warning("interrupting run %s: the code server stops", run_id)
            asked = serialize_value(CancelExecutionRequest(run_id=run_id))
            self.CancelExecution(
                dagster_api_pb2.CancelExecutionRequest(serialized_cancel_execution_request=asked), None
            )
        super().cleanup()

    def runs_under_way(self) -> Sequence[str]:
        answer = self.GetCurrentRuns(dagster_api_pb2.Empty(), None)
        return deserialize_value(answer.serialized_current_runs, GetCurrentRunsResult).current_runs
