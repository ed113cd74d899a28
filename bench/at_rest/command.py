"""A `clientmgr up` or `clientmgr demo` in a folder of its own, on free ports."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from clientmgr.base.settings import load_settings
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from clientmgr.local.processes.system import LISTENING_PORTS

UP_WITHIN_S = 300.0
JOBS_WITHIN_S = 900.0
STOPPED_WITHIN_S = 120.0
JOBS_ARE_DONE = "nightly jobs: all have ended"


class RunningCommand:
    """Starts it, and waits until it says that it is up. At the end it is stopped as by Ctrl-C, and its data removed."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._place = tempfile.TemporaryDirectory(prefix="at-rest-", dir=folder, ignore_cleanup_errors=True)
        self.folder = Path(self._place.name)
        self.answered_after_s = 0.0

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        ports = {name.upper(): "0" for name in LISTENING_PORTS}
        environment = {**os.environ, **ports, "DATA_DIR": str(self.folder / "data"), "LOG_FORMAT": "json"}
        began = time.monotonic()
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "clientmgr", self.name],
                cwd=self.folder,
                env=environment,
                stdout=stdout,
                stderr=stderr,
            )
        try:
            self._wait_for(lambda: "is up" in self._stdout.read_text(errors="replace"), UP_WITHIN_S, "it is up")
        except BaseException:
            self._end()
            raise
        self.answered_after_s = time.monotonic() - began
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def wait_until_settled(self, seconds: float) -> None:
        """Wait for the demo's jobs, which run once at its start, and then for what follows a start."""
        if self.name == "demo":
            self._wait_for(lambda: JOBS_ARE_DONE in self._stderr.read_text(errors="replace"), JOBS_WITHIN_S, "its jobs")
        time.sleep(seconds)

    @property
    def superuser_url(self) -> str:
        """Of its PostgreSQL: who may see everybody's statements."""
        data = load_settings(data_dir=self.folder / "data").data_dir
        server = EmbeddedPostgres(data / "postgres")
        server.port = int((server.data / "postmaster.pid").read_text().splitlines()[3])
        return server.superuser_url()

    @property
    def server_log(self) -> Path:
        """What its PostgreSQL writes."""
        return self.folder / "data" / "postgres" / "server.log"

    @property
    def _stdout(self) -> Path:
        return self.folder / "stdout"

    @property
    def _stderr(self) -> Path:
        return self.folder / "stderr"

    def _wait_for(self, look: Callable[[], bool], within_s: float, what: str) -> None:
        deadline = time.monotonic() + within_s
        while not look():
            if self._process.poll() is not None or time.monotonic() > deadline:
                last = self._stderr.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"clientmgr {self.name}: waited in vain until {what}; its last words:\n{last}")
            time.sleep(0.2)

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._place.cleanup()
