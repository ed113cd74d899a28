"""Starts publishers and consumers as processes of their own, quickly: it has imported everything once, and forks.

Speaks lines of JSON on its standard input and output. When the input ends, because the harness did, so do all children.
"""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from clientmgr.base.logs import configure_logging
from clientmgr.base.settings import Settings, load_settings
from tests.broker.faults.consumer import consume_until
from tests.broker.faults.publisher import publish_until
from tests.broker.faults.scenario import Task

REPOSITORY = Path(__file__).parents[3]


class Request(msgspec.Struct):
    """Start a process, or send one a signal, or neither: only tell who has ended."""

    start: Task | None = None
    pid: int = 0
    signal: int = 0


class Answer(msgspec.Struct):
    """`pid`: of the process that was started, or that the signal reached. `exits`: who ended by itself since."""

    pid: int
    exits: dict[int, int]


class Launcher:
    """The harness's side of it. Use it as `with`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        # Neither the shell nor a `.env` in the current folder may decide how a run ends.
        ours = {name.upper() for name in Settings.model_fields}
        env = {name: value for name, value in os.environ.items() if name.upper() not in ours}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name],
            cwd=self._folder,
            env=env | {"PYTHONPATH": str(REPOSITORY)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is for the harness, which then ends the rest of us in good order.
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()

    def start(self, task: Task) -> int:
        return self._ask(Request(start=task)).pid

    def send(self, pid: int, number: signal.Signals) -> bool:
        """Whether the process was still there. After SIGKILL it is not any more, when this returns."""
        return self._ask(Request(pid=pid, signal=number)).pid != 0

    def exits(self) -> dict[int, int]:
        """Exit codes of the processes that ended since the last call and were not killed by us."""
        return self._ask(Request()).exits

    def _ask(self, request: Request) -> Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(request) + b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=Answer)


def serve() -> None:
    """Answer requests until there are no more."""
    children: set[int] = set()
    ended: dict[int, int] = {}
    for line in sys.stdin.buffer:
        request = msgspec.json.decode(line, type=Request)
        ended |= _reap(children)
        pid = 0
        if request.start is not None:
            pid = _fork(request.start)
            children.add(pid)
        elif request.pid in children:
            pid = request.pid
            os.kill(pid, request.signal)
            if request.signal == signal.SIGKILL:
                os.waitpid(pid, 0)
                children.remove(pid)
        told = {} if request.start or request.pid else ended
        sys.stdout.buffer.write(msgspec.json.encode(Answer(pid, told)) + b"\n")
        sys.stdout.buffer.flush()
        if told:
            ended = {}
    for pid in children - _reap(children).keys():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _reap(children: set[int]) -> dict[int, int]:
    exits = {}
    for pid in list(children):
        reaped, status = os.waitpid(pid, os.WNOHANG)
        if reaped:
            children.remove(pid)
            exits[pid] = os.waitstatus_to_exitcode(status)
    return exits


def _fork(task: Task) -> int:
    # A SIGTERM that comes before the child is ready for it has to wait.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return pid
    try:
        _be_a_child(task)
    except BaseException:  # noqa: BLE001  (of a child nothing may come back here)
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _be_a_child(task: Task) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(task.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    configure_logging(load_settings(log_format="console"), process=task.name)
    random.seed(task.seed)
    asyncio.run(_work(task))


async def _work(task: Task) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    await (consume_until if task.role == "consumer" else publish_until)(stop, task)


if __name__ == "__main__":
    serve()
