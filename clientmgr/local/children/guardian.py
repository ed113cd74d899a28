"""A small process between us and one child, so that the child never outlives us.

It runs the child and watches a pipe whose other end we hold. When that end closes, because we asked for a stop or
because we were killed with SIGKILL, the guardian stops the child. Standard library only: it starts in no time.

usage: guardian.py CONTROL_FD STOP_SIGNAL GRACE_SECONDS command [argument …]
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(stop_signal: int) -> None:
    """In the child, before exec: Linux is to stop it should the guardian itself be killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, stop_signal)


def kill_group(pid: int) -> None:
    """End what the child left behind in its process group, its own children among them."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def stop(child: "subprocess.Popen[bytes]", stop_signal: int, grace_seconds: float) -> None:
    """Ask the child to stop; after the grace period, make it."""
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(stop_signal)
    try:
        child.wait(timeout=grace_seconds)
    except subprocess.TimeoutExpired:
        kill_group(child.pid)
        child.wait()


def main(arguments: list[str]) -> int:
    control_fd, stop_signal, grace_seconds = int(arguments[0]), int(arguments[1]), float(arguments[2])
    command = arguments[3:]
    # Whoever owns the pipe decides when we stop; a Ctrl-C for the whole terminal is theirs to handle.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)

    def prepare_child() -> None:
        for restored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(restored, signal.SIG_DFL)
        die_with_parent(stop_signal)

    try:
        # A guardian has one thread and nothing else open: preexec_fn's dangers do not apply.
        child = subprocess.Popen(command, start_new_session=True, preexec_fn=prepare_child)  # noqa: PLW1509
    except OSError as error:
        print(f"cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    asked_to_stop = False
    while child.poll() is None and not asked_to_stop:
        readable, _, _ = select.select([control_fd, wake_read], [], [])
        if wake_read in readable:
            os.read(wake_read, 512)
        asked_to_stop = control_fd in readable and not os.read(control_fd, 512)
    if child.poll() is None:
        stop(child, stop_signal, grace_seconds)
    kill_group(child.pid)
    code = child.returncode
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
