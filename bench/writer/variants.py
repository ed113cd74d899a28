"""Who is compared: the daemon, the same code with a commit per event, and the limit; each turn in a fresh copy."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from bench.harness.measure import Sample
from bench.harness.options import REPOSITORY
from bench.writer.databases import Source
from bench.writer.tasks import Report, Task

DATABASE = "turn"


@dataclass(frozen=True)
class Turn:
    """What a variant took and what it left."""

    sample: Sample
    rows: dict[str, object]
    reports: list[Report]


@dataclass(frozen=True)
class Variant:
    """A kind of work and its name in the tables."""

    name: str
    kind: str

    def run(self, source: Source, task: Task) -> Turn:
        """Work through a copy of `source` with `task.workers` processes that start together."""
        url = source.copy(DATABASE)
        processes = [
            _start({**asdict(task), "url": url, "kind": self.kind, "worker": worker}) for worker in range(task.workers)
        ]
        try:
            for process in processes:
                _expect_ready(process, self.name)
            source.server.settle()
            server_before = source.server.cpu_seconds()
            for process in processes:
                _stdin(process).write("go\n")
                _stdin(process).flush()
            reports = [_report(process, self.name) for process in processes]
            server_after = source.server.cpu_seconds()
        finally:
            for process in processes:
                process.kill()
                process.communicate()
        server_cpu = None if server_before is None or server_after is None else server_after - server_before
        # Both began together, so the slower one's time is that of the work.
        wall = max(report.wall_s for report in reports)
        rows = source.digest(url)
        source.server.drop_database(DATABASE)
        return Turn(Sample(wall, sum(report.cpu_s for report in reports), server_cpu), rows, reports)


def _start(task: dict[str, object]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.writer.worker", json.dumps(task)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        cwd=REPOSITORY,
    )


def _stdin(process: subprocess.Popen[str]) -> IO[str]:
    if process.stdin is None:
        raise RuntimeError("started without a pipe")
    return process.stdin


def _line(process: subprocess.Popen[str], name: str) -> str:
    line = "" if process.stdout is None else process.stdout.readline()
    if not line:
        raise RuntimeError(f"{name}: the worker ended with {process.wait()}; see above")
    return line


def _expect_ready(process: subprocess.Popen[str], name: str) -> None:
    if (line := _line(process, name).strip()) != "ready":
        raise RuntimeError(f"{name}: expected a worker that is ready, got {line!r}")


def _report(process: subprocess.Popen[str], name: str) -> Report:
    return Report(**json.loads(_line(process, name)))


DAEMON = Variant("ours, the daemon", "daemon")
ONE_COMMIT_PER_EVENT = Variant("one commit per event, from memory", "one-commit-per-event")
LIMIT = Variant("limit: prebuilt bulk statements", "limit")


def rehearsal_file(folder: Path, source: Source) -> Path:
    return folder / f"{source.name}.pickle"
