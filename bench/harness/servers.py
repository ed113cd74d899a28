"""The servers that benchmarks run on: embedded, durable, in a temporary folder, gone afterwards."""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

from bench.harness.options import Options
from clientmgr.base.database import Database
from clientmgr.local.embedded.postgres import EmbeddedPostgres, PostgresTuning

# Durable, as in production. Checkpoints come when `settle` asks for them, not in the middle of somebody's turn.
TUNING = PostgresTuning(fsync=True, max_wal_size="8GB", extra=(("checkpoint_timeout", "1h"),))


class BenchPostgres:
    """A PostgreSQL for one benchmark. Give each variant a database of its own."""

    def __init__(self, server: EmbeddedPostgres, *, sync_disk: bool) -> None:
        self._server = server
        self._sync_disk = sync_disk

    def url(self, database: str) -> str:
        return self._server.url(database)

    def superuser_url(self, database: str) -> str:
        return self._server.superuser_url(database)

    def database(self, name: str) -> Database:
        return Database(self.url(name))

    def create_database(self, name: str) -> None:
        """A fresh, empty database; one of that name is dropped first."""
        self.drop_database(name)
        self._execute(f'CREATE DATABASE "{name}"')

    def drop_database(self, name: str) -> None:
        # As the superuser: an autovacuum worker may be at work in it, and only that one may end it.
        with psycopg.connect(self._server.superuser_url(), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())

    def empty_table(self, database: str, table: str) -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(f'TRUNCATE "{table}"'.encode())

    def settle(self) -> None:
        """Let all earlier work reach the disk now, so that the next variant does not pay for the last one's."""
        with psycopg.connect(self._server.superuser_url(), autocommit=True) as connection:
            connection.execute("CHECKPOINT")
        if self._sync_disk:
            os.sync()

    def crash_and_start(self) -> float:
        """End it without a chance to tidy up. Returns how long it takes until it answers again, recovery included."""
        self._server.crash()
        started = time.perf_counter()
        self._server.restart_on_same_port()
        return time.perf_counter() - started

    def cpu_seconds(self) -> float | None:
        """The processor time that the server has used so far, all its processes together; None without /proc."""
        try:
            postmaster = int((self._server.data / "postmaster.pid").read_text().split()[0])
            return _cpu_ticks(postmaster) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError):
            return None

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)


@contextlib.contextmanager
def bench_postgres(options: Options) -> Iterator[BenchPostgres]:
    """A running server; its data is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder:
        server = EmbeddedPostgres(Path(folder) / "postgres", tuning=TUNING)
        server.start()
        try:
            yield BenchPostgres(server, sync_disk=not options.quick)
        finally:
            server.stop()


def _cpu_ticks(postmaster: int) -> int:
    """User and system time of the postmaster, of its backends, and of those that have ended (it reaped them)."""
    while True:
        backends = _cpu_ticks_of_children(postmaster)
        own_and_reaped = sum(map(int, _stat(postmaster)[11:15]))
        # A backend that ended meanwhile may have been counted twice: look again.
        if _cpu_ticks_of_children(postmaster).keys() == backends.keys():
            return sum(backends.values()) + own_and_reaped


def _cpu_ticks_of_children(parent: int) -> dict[int, int]:
    ticks = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = _stat(int(process.name))
            if int(fields[1]) == parent:
                ticks[int(process.name)] = sum(map(int, fields[11:13]))
    return ticks


def _stat(pid: int) -> list[str]:
    """/proc/PID/stat after the name, which may hold spaces: state, parent, …, and at 11 the times."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
