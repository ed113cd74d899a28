"""Whether anybody still wants a run: by its status in Dagster's storage, which every way of stopping it changes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import dagster as dg
import psycopg

from clientmgr.base.stopping import StillWanted

STOPPED = frozenset({dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.FAILURE})
CONNECT_WITHIN_S = 10


def run_is_wanted(instance: dg.DagsterInstance, run_id: str) -> bool:
    """False: somebody terminated the run, monitoring gave it up, or it was deleted.

    A storage that does not answer is an error and no answer: whoever asks must not go on without one.
    """
    # One query. `get_run_by_id` would ask PostgreSQL for the table's columns first, each time.
    runs = instance.get_runs(dg.RunsFilter(run_ids=[run_id]), limit=1)
    return bool(runs) and runs[0].status not in STOPPED


@contextmanager
def asking_whether_wanted(instance: dg.DagsterInstance, run_id: str) -> Iterator[StillWanted]:
    """The same for work that asks often: Dagster opens a connection for each question, which takes 13 ms."""
    url = getattr(instance.run_storage, "postgres_url", None)
    if url is None:
        yield lambda: run_is_wanted(instance, run_id)
        return
    status = _Status(url, run_id)
    try:
        yield status.is_wanted
    finally:
        status.close()


class _Status:
    """Of a run, on one connection to Dagster's database. Several threads may ask."""

    def __init__(self, url: str, run_id: str) -> None:
        self._url, self._run_id = url, run_id
        self._asking = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None

    def is_wanted(self) -> bool:
        with self._asking:
            with suppress(psycopg.Error):
                return self._ask()
            # The connection was lost since the last question.
            self.close()
            try:
                return self._ask()
            except psycopg.Error as error:
                # Not as an error of the work's own database, which may concern one tenant alone.
                raise ConnectionError(f"nobody can tell whether the run is still wanted: {error}") from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self) -> bool:
        if self._connection is None:
            self._connection = psycopg.connect(
                self._url, autocommit=True, application_name="run_status", connect_timeout=CONNECT_WITHIN_S
            )
        found = self._connection.execute("SELECT status FROM runs WHERE run_id = %s", (self._run_id,)).fetchone()
        return found is not None and dg.DagsterRunStatus(found[0]) not in STOPPED
