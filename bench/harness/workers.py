"""Worker programs: they get ready, say so, start together when told, and report their own time: no start-up is counted.

A worker is called with one JSON argument, prints `ready`, waits for a line, and prints one JSON line.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

from bench.harness.options import REPOSITORY


class Workers:
    """Programs that are ready. `go` may be called once."""

    def __init__(self, name: str, processes: Sequence["subprocess.Popen[str]"]) -> None:
        self._name = name
        self._processes = processes

    def start(self) -> None:
        for process in self._processes:
            _stdin(process).write("go\n")
            _stdin(process).flush()

    def reports(self) -> list[dict[str, Any]]:
        """What each says at its end."""
        return [json.loads(_line(process, self._name)) for process in self._processes]


@contextmanager
def ready_workers(name: str, module: str, tasks: Sequence[Mapping[str, object]]) -> Iterator[Workers]:
    """A program of `module` for each task, all of them ready; none is left at the end. `name` is for errors."""
    processes = [_start(module, task) for task in tasks]
    try:
        for process in processes:
            if (line := _line(process, name).strip()) != "ready":
                raise RuntimeError(f"{name}: expected a worker that is ready, got {line!r}")
        yield Workers(name, processes)
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _start(module: str, task: Mapping[str, object]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", module, json.dumps(task)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        cwd=REPOSITORY,
    )


def _stdin(process: "subprocess.Popen[str]") -> IO[str]:
    if process.stdin is None:
        raise RuntimeError("started without a pipe")
    return process.stdin


def _line(process: "subprocess.Popen[str]", name: str) -> str:
    line = "" if process.stdout is None else process.stdout.readline()
    if not line:
        raise RuntimeError(f"{name}: the worker ended with {process.wait()}; see above")
    return line
