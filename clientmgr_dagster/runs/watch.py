"""What a run's process does beside its work: it notes itself on the run, and ends when nobody wants the run any more.

Dagster tells the code server to interrupt a run, and the code server tells the process. Where the code server is gone,
or monitoring marked the run as ended, nobody tells it: so it looks by itself.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
from dagster._core.errors import DagsterExecutionInterruptedError  # what a step raises that is terminated
from dagster._core.events import DagsterEventType

from clientmgr.base.logs import get_logger
from clientmgr_dagster.runs.wanted import run_is_wanted
from clientmgr_dagster.runs.worker import RunLock, this_worker

log = get_logger(__name__)

ENDED = {DagsterEventType.RUN_CANCELING, DagsterEventType.RUN_CANCELED, DagsterEventType.RUN_FAILURE}


@contextmanager
def watched(instance: dg.DagsterInstance, run_id: str) -> Iterator[None]:
    """While this lasts, the process is noted on the run and holds its lock, and a stop reaches it."""
    instance.add_run_tags(run_id, this_worker().to_tags())
    run = instance.get_run_by_id(run_id)
    if run is None or instance.all_logs(run_id, of_type=ENDED):
        # Stopped, or given up, while it started: the start itself has overwritten the status that says so.
        if run is not None:
            instance.report_run_canceling(run, "The run was ended before it began.")
        raise DagsterExecutionInterruptedError("the run was ended before it began")
    watch = RunWatch(
        instance,
        run_id,
        look_every_s=instance.cancellation_thread_poll_interval_seconds,
        # Well before monitoring writes down that the run has ended, it has. A batch takes a second.
        stop_within_s=instance.run_monitoring_cancel_timeout_seconds / 3,
    )
    watch.start()
    try:
        yield
    finally:
        watch.end()


class RunWatch:
    """A thread of a run's process."""

    def __init__(self, instance: dg.DagsterInstance, run_id: str, *, look_every_s: float, stop_within_s: float) -> None:
        self._instance = instance
        self._run_id = run_id
        self._look_every_s = look_every_s
        self._stop_within_s = stop_within_s
        self._done = threading.Event()
        self._lock = RunLock(instance, run_id)
        self._thread = threading.Thread(target=self._watch, name="run-watch", daemon=True)

    def start(self) -> None:
        self._lock.keep()
        self._thread.start()

    def end(self) -> None:
        self._done.set()
        self._thread.join(self._look_every_s)
        self._lock.release()

    def _watch(self) -> None:
        while self._is_wanted():
            if self._done.wait(self._look_every_s):
                return
            self._lock.keep()
        # Most often the code server has interrupted it by now. A second interrupt would disturb its tidying up.
        if self._done.wait(self._look_every_s):
            return
        os.kill(os.getpid(), signal.SIGINT)
        if not self._done.wait(self._stop_within_s):
            self._end_for_good()

    def _is_wanted(self) -> bool:
        try:
            return run_is_wanted(self._instance, self._run_id)
        except Exception as error:  # noqa: BLE001  # whatever a storage raises: work that destroys asks for itself
            log.warning("the run's status can't be read", run_id=self._run_id, error=str(error))
            return True

    def _end_for_good(self) -> None:
        """What did not end by itself goes now. PostgreSQL rolls its transactions back; Spark's JVM ends with us."""
        message = f"The process (pid: {os.getpid()}) did not end within {self._stop_within_s:.0f} s of an interrupt."
        try:
            run = self._instance.get_run_by_id(self._run_id)
            if run is not None and run.status is dg.DagsterRunStatus.CANCELING:
                self._instance.report_run_canceled(run, message)
        finally:
            os._exit(os.EX_TEMPFAIL)
