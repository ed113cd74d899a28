"""The process that Spark's Python workers are forked from. It has imported all that any of them needs.

It has one thread: see `ONE_THREAD`. It ends with whoever
started it, by the pipe that is its standard input. Its children end with the JVM that they work for.

usage: python -m clientmgr_dagster.spark.workers.nursery SOCKET
"""

import contextlib
import gc
import importlib
import json
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Final

from clientmgr_dagster.forks import ONE_THREAD
from clientmgr_dagster.spark.workers import python as sparks_python

IMPORTED: Final = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.commit_data_source_write",
    "pyarrow.compute",
    "clientmgr_dagster.spark.tenant_source",
    "clientmgr_dagster.spark.results_writer",
    "clientmgr_dagster.spark.bigquery_source",
    "clientmgr_dagster.spark.dynamodb_source",
)
HASH_SEED: Final = {"PYTHONHASHSEED": "0"}
"""As Spark has it: its workers must agree on what a text's hash is."""
COMMAND: Final = """#!/bin/sh
exec {python} -IS {script} {python} {socket} "$@"
"""
LONGEST_REQUEST: Final = 1_000_000
IDLE_S: Final = 120.0
"""Longer than Spark keeps a worker that has nothing to do, which is a minute."""


@contextlib.contextmanager
def running_nursery(environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """What goes into the environment of a JVM whose Python workers come from here. At the end no new ones do."""
    folder = Path(tempfile.mkdtemp(prefix="clientmgr-nursery-"))  # with mode 0700
    path, command = folder / "socket", folder / "python"
    words = {"python": sys.executable, "script": sparks_python.__file__, "socket": str(path)}
    command.write_text(COMMAND.format(**{name: shlex.quote(word) for name, word in words.items()}))
    command.chmod(0o700)
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, path],
        env={**environment, **ONE_THREAD, **HASH_SEED},
        stdin=subprocess.PIPE,
        # The group's signals are for whoever started us.
        start_new_session=True,
    )
    try:
        yield {"PYSPARK_PYTHON": str(command)}
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.wait()


def main(path: str) -> int:
    listener = socket.socket(socket.AF_UNIX)
    # Who asks while we import waits for us, and need not import by itself.
    listener.bind(path)
    listener.listen(64)
    for module in IMPORTED:
        importlib.import_module(module)
    # What is there now stays for good: no collection has to look at it, or to copy the page that it is on.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        readable, _, _ = select.select([0, listener.fileno()], [], [])
        if 0 in readable and not os.read(0, 64):
            # Whoever started us may have been killed: nobody else would remove it.
            shutil.rmtree(Path(path).parent, ignore_errors=True)
            return 0
        if listener.fileno() in readable:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _become_daemon(connection)
            connection.close()


def _become_daemon(connection: socket.socket) -> None:
    """In the child: take Spark's pipes and be its daemon. Whoever asked learns of our end by the connection's."""
    code = 1
    try:
        length, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
        size = int.from_bytes(length, "big")
        if len(descriptors) == 3 and size <= LONGEST_REQUEST:
            with connection.makefile("rb") as lines:
                request = json.loads(lines.read(size))
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            os.chdir(request["folder"])
            os.environ.clear()
            os.environ.update(request["environment"])
            sys.argv = request["arguments"]
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)

            from pyspark.daemon import manager

            _end_when_idle()
            manager()
            code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        os._exit(code)


def _end_when_idle() -> None:
    """Spark ends its daemons with its JVM. On a server with a session a run they would grow more and more.

    One that comes to be needed again is started again, by Spark itself. By a timer, as we are to have no second thread;
    the workers that are forked from here have none.
    """
    forked_at = time.monotonic()

    def note_fork() -> None:
        nonlocal forked_at
        forked_at = time.monotonic()

    def look(_number: int, _frame: FrameType | None) -> None:
        if time.monotonic() - forked_at < IDLE_S:
            return
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # there are no workers
            os.kill(os.getpid(), signal.SIGTERM)

    os.register_at_fork(after_in_parent=note_fork)
    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, IDLE_S, IDLE_S / 4)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
