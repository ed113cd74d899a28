"""Our side of the guardian: start a child, ask whether it runs, stop it. Closing our end of the pipe is the stop."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from clientmgr.local.children import guardian
from clientmgr.local.children.confinement import Confinement


class GuardedProcess:
    """A child process that ends when we do, however we end."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        output: IO[bytes] | int | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        grace_seconds: float = 20.0,
        run_as: "RunAs | None" = None,
        confinement: Confinement | None = None,
    ) -> None:
        self.name = name
        self.grace_seconds = grace_seconds
        run_as = run_as or RunAs()
        read_end, self._control = os.pipe()
        try:
            self._guardian = subprocess.Popen(
                [
                    *run_as.prefix,
                    sys.executable,
                    # -I would drop PYTHONPATH, -S the site packages: the guardian needs neither.
                    "-IS",
                    guardian.__file__,
                    str(read_end),
                    str(int(stop_signal)),
                    str(grace_seconds),
                    *(confinement.prefix if confinement else ()),
                    *map(str, command),
                ],
                env=env,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT if output is not None else None,
                pass_fds=[read_end],
                start_new_session=True,
                user=run_as.user,
                group=run_as.user,
                extra_groups=None if run_as.user is None else [],
            )
        finally:
            os.close(read_end)

    @property
    def pid(self) -> int:
        """The guardian's process id; the child is its only child."""
        return self._guardian.pid

    @property
    def output(self) -> IO[bytes] | None:
        """What the child writes, where it was started with `output=subprocess.PIPE`."""
        return self._guardian.stdout

    def read_output(self) -> str:
        """All that the child writes until it ends."""
        if self.output is None:
            return ""
        with self.output as output:
            return output.read().decode(errors="replace")

    def exit_code(self) -> int | None:
        """None while it runs; then its code, 128 + n when it ended by signal n."""
        code = self._guardian.poll()
        return None if code is None else _as_shells_count(code)

    def wait(self, timeout: float | None = None) -> int:
        return _as_shells_count(self._guardian.wait(timeout))

    def request_stop(self) -> None:
        """Ask for a stop without waiting for it."""
        if self._control >= 0:
            os.close(self._control)
            self._control = -1

    def stop(self) -> int:
        """Stop the child, by force after its grace period, and return its exit code."""
        self.request_stop()
        return self.wait(self.grace_seconds + 10)


class RunAs:
    """As whom a child runs: as ourselves (default), inside a user namespace, or as another user."""

    def __init__(self, prefix: Sequence[str] = (), user: int | None = None) -> None:
        self.prefix = tuple(prefix)
        self.user = user


def _as_shells_count(code: int) -> int:
    # The guardian reports its child so; it is only negative when the guardian itself was killed.
    return code if code >= 0 else 128 - code
