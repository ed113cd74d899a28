"""Who is compared: the daemon, the same code with a commit per event, and the limit; each turn in a fresh copy."""

from dataclasses import asdict, dataclass
from pathlib import Path

from bench.harness.measure import Sample
from bench.harness.workers import ready_workers
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
        tasks = [{**asdict(task), "url": url, "kind": self.kind, "worker": worker} for worker in range(task.workers)]
        with ready_workers(self.name, "bench.writer.worker", tasks) as workers:
            source.server.settle()
            server_before = source.server.cpu_seconds()
            workers.start()
            reports = [Report(**report) for report in workers.reports()]
            server_after = source.server.cpu_seconds()
        server_cpu = None if server_before is None or server_after is None else server_after - server_before
        # Both began together, so the slower one's time is that of the work.
        wall = max(report.wall_s for report in reports)
        rows = source.digest(url)
        source.server.drop_database(DATABASE)
        return Turn(Sample(wall, sum(report.cpu_s for report in reports), server_cpu), rows, reports)


DAEMON = Variant("ours, the daemon", "daemon")
ONE_COMMIT_PER_EVENT = Variant("one commit per event, from memory", "one-commit-per-event")
LIMIT = Variant("limit: prebuilt bulk statements", "limit")


def rehearsal_file(folder: Path, source: Source) -> Path:
    return folder / f"{source.name}.pickle"
