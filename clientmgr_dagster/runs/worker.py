"""The process of a run: how it is noted on the run, how others know whether it lives, and what it holds while it does.

Two signs of life. On the machine where the process is, its pid and start time in the process table: a process that is
frozen is there, a zombie is not, and a pid that was given to another process has another start time. Everywhere else, a
lock in Dagster's database that lasts as long as the process's connection: no clocks, no heartbeats.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import msgspec
import psycopg
from dagster._core.storage.tags import HIDDEN_TAG_PREFIX

WORKER_TAG = f"{HIDDEN_TAG_PREFIX}clientmgr_worker"
"""Of a run: its process, as JSON. The UI does not show it."""

PROC = Path("/proc")
CONNECT_WITHIN_S = 5
# A machine that is gone says nothing more. The server drops its connection, and the lock, after 25 silent seconds.
KEEPALIVE = "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
HOLD = "SELECT pg_try_advisory_lock(%(key)s::bigint)"
IS_HELD = """
SELECT EXISTS (
    SELECT FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND objsubid = 1
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND classid = (%(key)s::bigint >> 32)::oid AND objid = (%(key)s::bigint & 4294967295)::oid
)
"""


class Worker(msgspec.Struct, frozen=True):
    """A process of a run."""

    pid: int
    started: int
    """In the kernel's ticks since its start. 0: this system can't tell."""
    process_table: str
    """Which kernel, since which start, and which container's view of it. Empty: this system can't tell."""

    def to_tags(self) -> dict[str, str]:
        return {WORKER_TAG: msgspec.json.encode(self).decode()}

    def is_here(self) -> bool:
        """Whether this process can see that one, if it lives."""
        return bool(self.process_table) and self.process_table == _process_table()

    def lives(self) -> bool:
        """For a process that `is_here`."""
        return _start_of(self.pid) == self.started


def this_worker() -> Worker:
    return Worker(os.getpid(), _start_of(os.getpid()) or 0, _process_table())


def noted_worker(tags: Mapping[str, str]) -> Worker | None:
    """The process that a run noted about itself, by the run's tags."""
    try:
        return msgspec.json.decode(tags.get(WORKER_TAG, ""), type=Worker)
    except msgspec.DecodeError:
        return None


class RunLock:
    """Held by a run's process while it works. Only on PostgreSQL: other storages of Dagster's have no such lock."""

    def __init__(self, instance: dg.DagsterInstance, run_id: str) -> None:
        self._url: str | None = getattr(instance.run_storage, "postgres_url", None)
        self._key = {"key": int.from_bytes(hashlib.sha256(f"clientmgr/run/{run_id}".encode()).digest()[:7])}
        self._connection: psycopg.Connection[Any] | None = None

    def keep(self) -> None:
        """Take it, or take it again after the connection was lost. Without a database it is tried again next time."""
        if self._url is None:
            return
        try:
            if self._connection is None:
                self._connection = self._connect("run_worker")
                self._connection.execute(KEEPALIVE)
                if self._connection.execute(HOLD, self._key).fetchone() == (False,):
                    # The server has not noticed yet that our last connection is lost: again at the next look.
                    self.release()
            else:
                self._connection.execute("SELECT")
        except psycopg.Error:
            self.release()

    def is_held(self) -> bool | None:
        """By anybody. None: this storage has no such locks."""
        if self._url is None:
            return None
        with self._connect("run_monitoring") as connection:
            return bool(connection.execute(IS_HELD, self._key).fetchall()[0][0])

    def release(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self, name: str) -> psycopg.Connection[Any]:
        return psycopg.connect(
            self._url or "", autocommit=True, application_name=name, connect_timeout=CONNECT_WITHIN_S
        )


def _process_table() -> str:
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{(PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


def _start_of(pid: int) -> int | None:
    """When a process that has not ended was started; None: there is none."""
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The command is in parentheses and may contain anything. State is the first field after it, start time the 20th.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])
