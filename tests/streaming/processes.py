"""Workers as operators run them: `clientmgr run …`, a process each, to be stopped or killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clientmgr.base.settings import Settings
from tests.waiting import eventually

COMMAND = (sys.executable, "-c", "from clientmgr.cli import main; main()", "run")


class WorkerProcess:
    """One daemon. What it logs is in `log_file`, a JSON object a line."""

    def __init__(self, settings: Settings, log_file: Path, *arguments: str) -> None:
        self.log_file = log_file
        environment = {**os.environ, **settings.environment(), "LOG_FORMAT": "json"}
        with log_file.open("ab") as log:
            self._process = subprocess.Popen([*COMMAND, *arguments], env=environment, stdout=log, stderr=log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_until_started(self, *, within_s: float = 60.0) -> None:
        eventually(lambda: "daemon started" in self.log or not self.running, "the daemon started", within_s=within_s)
        assert self.running, self.log

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_s: float = 90.0) -> int:
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """As the kernel would: no chance to tidy up. One that has ended by itself stays ended."""
        self._process.kill()
        self._process.wait(30)


@contextmanager
def worker(settings: Settings, folder: Path, *arguments: str) -> Iterator[WorkerProcess]:
    """A daemon that is gone at the end, whatever happens."""
    process = WorkerProcess(settings, folder / f"{arguments[0]}.log", *arguments)
    try:
        yield process
    finally:
        process.kill()
