"""A small process between us and one child, so that the child never outlives us.

It runs the child and watches a pipe whose other end we hold. When that end closes, because we asked for a stop or
because we were killed with SIGKILL, the guardian stops the child. There is one for each child, all day: so it imports
next to nothing, and takes little more than Python itself.

usage: guardian.py CONTROL_FD STOP_SIGNAL GRACE_SECONDS command [argument …]
"""

import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
CANNOT_RUN = 127


def die_with_parent(stop_signal: int) -> None:
    """In the child, before exec: Linux is to stop it should the guardian itself be killed."""
    if sys.platform == "linux":
        import ctypes  # in the child alone: it is gone with exec

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, stop_signal)


def signal_group(pid: int, number: int) -> None:
    """End what the child left behind in its process group, its own children among them."""
    try:  # noqa: SIM105  # contextlib is not imported for this
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


class Child:
    """The one child, in a session of its own."""

    def __init__(self, command: list[str], stop_signal: int, wake: int) -> None:
        self._stop_signal = stop_signal
        self._wake = wake
        self._status: int | None = None
        guardian = os.getpid()
        # Closes with exec. Until then the child ignores signals as we do: a stop that came sooner would be lost.
        not_yet, becoming = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._become(command, guardian)
        os.close(becoming)
        os.read(not_yet, 1)
        os.close(not_yet)

    def _become(self, command: list[str], guardian: int) -> None:
        try:
            os.setsid()
            for restored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(restored, signal.SIG_DFL)
            die_with_parent(self._stop_signal)
            # Python ignores these two; whoever comes after it may not expect that.
            for restored in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(restored, signal.SIG_DFL)
            if os.getppid() == guardian:
                os.execvp(command[0], command)  # noqa: S606  # no shell is wanted
        except OSError as error:
            os.write(2, f"cannot run {command[0]}: {error.strerror}\n".encode())
        finally:
            os._exit(CANNOT_RUN)

    def has_ended(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = status
        return self._status is not None

    def wait(self, seconds: float) -> bool:
        """Whether it ends within so many seconds."""
        deadline = time.monotonic() + seconds
        while not self.has_ended():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.sleep([], left)
        return True

    def sleep(self, others: list[int], seconds: float | None = None) -> list[int]:
        """Until the child ends, one of the others can be read, or the time is over. Returns what can be read."""
        readable, _, _ = select.select([*others, self._wake], [], [], seconds)
        if self._wake in readable:
            os.read(self._wake, 512)
        return readable

    def stop(self, grace_seconds: float) -> None:
        """Ask it to stop; after the grace period, make it."""
        try:  # noqa: SIM105
            os.kill(self.pid, self._stop_signal)
        except ProcessLookupError:
            pass
        if not self.wait(grace_seconds):
            signal_group(self.pid, signal.SIGKILL)
            while not self.has_ended():
                self.sleep([])

    @property
    def exit_code(self) -> int:
        """As shells count: 128 + n when it ended by signal n."""
        code = os.waitstatus_to_exitcode(self._status or 0)
        return code if code >= 0 else 128 - code


def main(arguments: list[str]) -> int:
    control_fd, stop_signal, grace_seconds = int(arguments[0]), int(arguments[1]), float(arguments[2])
    # The child is not to hold it.
    os.set_inheritable(control_fd, False)
    # Whoever owns the pipe decides when we stop; a Ctrl-C for the whole terminal is theirs to handle.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    child = Child(arguments[3:], stop_signal, wake_read)
    while not child.has_ended():
        readable = child.sleep([control_fd])
        if control_fd in readable and not os.read(control_fd, 512):
            child.stop(grace_seconds)
    signal_group(child.pid, signal.SIGKILL)
    return child.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
