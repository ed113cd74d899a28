"""The gateway as a child process that a test may stop, kill and start again on the same port."""

import os
import subprocess
import sys
from pathlib import Path

from clientmgr.base.database import Database
from clientmgr.local.embedded.server import free_port

SCRIPT = Path(__file__).with_name("run_gateway.py")


class GatewayProcess:
    def __init__(self, database: Database, log_file: Path, *, poll_ms: int = 1000, **settings: object) -> None:
        self._database = database
        self._poll_ms = poll_ms
        self._settings = {name.upper(): str(value) for name, value in settings.items()}
        self._log_file = log_file
        self.port = free_port()
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        environment = {
            **os.environ,
            "DATABASE_URL": self._database.url,
            "PUBSUB_GATEWAY_PORT": str(self.port),
            "BROKER_WAIT_PERIOD_MS": str(self._poll_ms),
            "LOG_FORMAT": "json",
            **self._settings,
        }
        with self._log_file.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, SCRIPT], env=environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == str(self.port), self._log_file.read_text()

    def peak_memory_mb(self) -> float:
        """The most that it ever had resident."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024

    def kill(self) -> None:
        """As the kernel would: no chance to tidy up."""
        assert self._process is not None
        self._process.kill()
        self._end()

    def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self._end()

    def _end(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        code = self._process.wait(30)
        self._process.stdout.close()
        return code
