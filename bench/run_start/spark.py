"""Cold and warm Spark: what two jobs over three tiny tenants cost by where their Spark is, and where the time goes.

| way | |
|---|---|
| shared, later runs | the server is warm; the process, its session and its Python are new |
| shared, the first run | it has the server started |
| a JVM a run | without the shared server: each process starts Spark |
| plain SQL | the same statements by psycopg, in a warm process |

Each in a process of its own, by phase: imports, session (with the JVM), first job (a count of ten numbers), orphan
detection, dashboard collection. Dagster is not in it.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.batch.variants import PLAIN_SQL
from bench.batch.workload import NOW, ORPHANED_BEFORE, Workload, make_workload
from bench.harness.measure import Sample
from bench.harness.options import Options
from bench.harness.report import Comparison, Line
from bench.harness.servers import bench_postgres
from bench.run_start.parts import parts
from clientmgr.base.customer_ids import parse_customer_id
from clientmgr.base.database import Database
from clientmgr.base.settings import Settings, load_settings
from clientmgr.local.embedded.server import free_port
from clientmgr.local.shared_spark.activator import Activator

TENANTS, DEVICES = 3, 300
LATER_RUNS = 3
WORKS = ("orphan detection", "dashboard collection")
IN_ALL = "in all"


def starts(options: Options) -> Comparison:
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder,
        bench_postgres(options) as server,
    ):
        workload = make_workload(server, "tiny", tenants=TENANTS, devices=DEVICES, skewed_share=0)
        settings = workload.settings.model_copy(update={"data_dir": Path(folder), "spark_partitions": 2})
        # First, while there are no results: unlike ours, it does not replace those that it finds.
        sql = {work: _seconds(partial(_plain_sql, work, workload)) for work in WORKS}
        with shared_server(settings) as shared:
            first = _run(shared, workload)
            later = [_run(shared, workload) for _ in range(1 if options.quick else LATER_RUNS)]
        phases = {
            "shared, later runs": later,
            "shared, the first run": [first],
            "a JVM a run": [_run(settings, workload)],
            "plain SQL": [sql | {IN_ALL: sum(sql.values())}],
        }
    return Comparison(
        f"Spark, cold and warm: {' and '.join(WORKS)} of {TENANTS} tenants with {DEVICES // TENANTS} devices each",
        tuple(Line(way, tuple(Sample(one[IN_ALL], 0.0) for one in found)) for way, found in phases.items()),
        notes=tuple(f"{way}: {parts(found)}" for way, found in phases.items()),
    )


@contextlib.contextmanager
def shared_server(settings: Settings) -> Iterator[Settings]:
    """As `up` has it, in a thread."""
    port = free_port()
    shared = settings.model_copy(update={"spark_connect_url": f"sc://localhost:{port}", "spark_connect_token": _TOKEN})
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(Activator(shared).run(port, stop)))
    thread.start()
    try:
        yield shared
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


_TOKEN = load_settings(spark_connect_token="of-the-bench").spark_connect_token  # noqa: S106  # for a moment


def _run(settings: Settings, workload: Workload) -> dict[str, float]:
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "bench.run_start.spark", *map(str, workload.customers)],
        env={**os.environ, **settings.environment()},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    phases: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return phases | {IN_ALL: time.perf_counter() - started}


def one_run(customers: list[str]) -> None:
    """In the process that is measured."""
    phases: dict[str, float] = {}

    def measure(name: str, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = work()
        phases[name] = time.perf_counter() - started
        return result

    def imports() -> tuple[Any, Any, Any]:
        from clientmgr_dagster.spark.orphans import find_orphans
        from clientmgr_dagster.spark.session import start_session
        from clientmgr_dagster.spark.tenant_metrics import collect_metrics

        return start_session, find_orphans, collect_metrics

    start_session, find_orphans, collect_metrics = measure("imports", imports)
    settings = load_settings()
    spark = measure("session", partial(start_session, settings))
    measure("first job", lambda: spark.range(10).count())
    where = (spark, Database.from_settings(settings), settings, [parse_customer_id(one) for one in customers])
    when = {"orphaned_before": ORPHANED_BEFORE, "run_id": "bench"}
    measure(WORKS[0], partial(find_orphans, *where, threshold=NOW - ORPHANED_BEFORE, found_at=NOW, **when))
    measure(WORKS[1], partial(collect_metrics, *where, collected_at=NOW, **when))
    spark.stop()
    print(json.dumps(phases))


def _plain_sql(work: str, workload: Workload) -> None:
    # It needs no Spark, whatever the signature that all variants share says.
    PLAIN_SQL.tasks[work](None, workload)  # type: ignore[arg-type]


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    one_run(sys.argv[1:])
