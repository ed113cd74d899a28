"""What the stand-ins have in common: a virtualenv of their own (tools/setup-apart), as their pins are not ours."""

import abc
import os
import signal
import sys
from pathlib import Path

from clientmgr.base.errors import EmbeddedServerError
from clientmgr.local.children.guarded import GuardedProcess
from clientmgr.local.embedded.server import EmbeddedServer


class StandIn(EmbeddedServer):
    """A server from the stand-ins' virtualenv. What it holds is gone with it."""

    port_setting = "none"
    stop_signal = signal.SIGTERM
    crash_signal = signal.SIGKILL

    def __init__(self, folder: Path, *, port: int = 0, venv: Path | None = None) -> None:
        super().__init__(folder, port=port)
        self._venv = venv or standins_venv()

    @property
    @abc.abstractmethod
    def settings(self) -> dict[str, str]:
        """What `Settings` are to say to reach it."""

    @property
    def _pid_file(self) -> Path:
        return self.folder / "server.pid"

    def _prepare(self) -> None:
        if not (self._venv / "bin" / "python").exists():
            raise EmbeddedServerError(f"{self.name}: {self._venv} is not there; `make standins` makes it")

    def _run(self, command: list[str | Path], environment: dict[str, str]) -> GuardedProcess:
        # They keep things in the home directory, which is none of theirs.
        own = {"HOME": str(self.folder), "PATH": os.environ.get("PATH", ""), **environment}
        with self.log_file.open("ab") as log:
            return GuardedProcess(
                self.name, command, env=own, output=log, stop_signal=self.stop_signal, cwd=self.folder
            )

    def _program(self, name: str) -> Path:
        return self._venv / "bin" / name


def standins_venv() -> Path:
    """STANDINS_VENV, or the folder that `make standins` fills, beside the virtualenv that we run in."""
    return Path(os.environ.get("STANDINS_VENV") or Path(sys.prefix).with_name(".venv-standins"))


def standins_are_installed() -> bool:
    return (standins_venv() / ".installed").exists()
