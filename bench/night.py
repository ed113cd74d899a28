"""A whole night of 10,000 tenants: schemas, contact deletions, orphans, what the fetch missed, metrics. And beside it.

| variant | what it does |
|---|---|
| ours | our jobs as their schedules launch them, runs over 500 tenants, on a real instance (PostgreSQL storage) |
| a run per tenant | the same assets as they are usually written: each tenant a run; a few of them, scaled up |
| plain SQL | what the orphans' and the metrics' jobs find, by psycopg on two connections: no Dagster, no Spark |

Every tenant has 100 devices, 8 of them orphans; one in 50 has deleted 5 contacts in the BigQuery stand-in.
Runs are executed one after the other in this process, which has one Spark session: no run's start is counted
(`run_start` does that). Checked: every run succeeds; deleted orphans and devices that are left are those that plain SQL
counts; all deleted contacts are published. Spark's JDBC source would make a run per tenant slower still: see `batch`.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import dagster as dg
import psycopg

from bench.batch.session import Driver, running_driver
from bench.batch.variants import PLAIN_SQL
from bench.batch.workload import ORPHANED_BEFORE, Workload, make_workload
from bench.harness.dagster_instance import QUIET, dagster_instance
from bench.harness.measure import Sample, ensure_same_work
from bench.harness.options import Options
from bench.harness.report import Comparison, Line
from bench.harness.servers import BenchPostgres, bench_postgres
from clientmgr.base.customer_ids import CustomerId
from clientmgr.local.standins.bigquery import BigQueryStandIn
from clientmgr_dagster.chunks import requests_for_all
from clientmgr_dagster.materialisations import SCHEDULE_TAG
from clientmgr_dagster.partitions import PARTITIONS
from clientmgr_dagster.policies import TENANTS_PER_RUN

TENANTS, DEVICES = 10_000, 100
RUNS_OF_ONE = 10
"""As many tenants have a run of their own; the time is scaled up."""
ONE_IN, DELETED, FIRST_CONTACT = 50, 5, 1001
"""One tenant in so many has deleted so many contacts."""
DELETIONS, ORPHANS, METRICS = "contact_deletion_job", "orphan_deletion_job", "dashboard_job"
NIGHT: Final = ("tenant_schema_job", DELETIONS, ORPHANS, "contact_deletion_reconciliation_job", METRICS)
"""In the order of their schedules. Schemas are all at the newest version: the job only finds that out."""
BESIDE: Final = {ORPHANS: "orphan detection", METRICS: "dashboard collection"}
TABLE: Final = "contacts.deleted_contacts"
MB = 1_000_000


def run(options: Options) -> Iterator[Comparison]:
    tenants = options.tenants or (60 if options.quick else TENANTS)
    with bench_postgres(options) as server, running_driver(options) as driver:
        yield from compare(server, driver, tenants=tenants, runs_of_one=min(tenants, RUNS_OF_ONE))


def compare(server: BenchPostgres, driver: Driver, *, tenants: int, runs_of_one: int) -> Iterator[Comparison]:
    _announce(f"making {tenants + runs_of_one:,} tenants")
    everybody = tenants + runs_of_one
    workload = make_workload(server, "night", tenants=everybody, devices=everybody * DEVICES, skewed_share=0)
    many = workload.with_customers(workload.customers[:tenants])
    # First, while there are all orphans.
    sql = {job: driver.measure(partial(PLAIN_SQL.run, work, driver, many), server) for job, work in BESIDE.items()}
    expected = _expected(many)
    workload.forget_results()
    server.create_database("night_dagster")
    with _stores(workload), dagster_instance(server, "night_dagster") as instance:
        night = _Night(instance, server, driver, [str(one) for one in workload.customers])
        warm = night.take(NIGHT, workload.customers[-1:], size=1)
        alone = night.take(NIGHT, workload.customers[tenants:], size=1)
        before = night.log_bytes()
        ours = night.take(NIGHT, many.customers, size=TENANTS_PER_RUN)
        note = f"ours: {(night.log_bytes() - before) / MB:.1f} MB of event log, all tenants being new to Dagster"
        ensure_same_work("the night", {"plain SQL": expected, "ours": _found(many)})
    a_run_each = f"a run per tenant, {runs_of_one} scaled up"
    scaled = {job: _times(sample, tenants / runs_of_one) for job, sample in alone.items()}
    for job in NIGHT:
        lines = [Line("ours", (ours[job],)), Line(a_run_each, (scaled[job],))]
        lines += [Line("plain SQL", (sql[job],))] if job in sql else []
        yield Comparison(f"{job}: {tenants:,} tenants", tuple(lines), tenants, "tenants")
    lines = [Line("ours", (_sum(ours),)), Line(a_run_each, (_sum(scaled),))]
    first = f"the first run of each job took {_sum(warm).wall_s:.1f} s together, and is in none of these"
    yield Comparison(f"The whole night: {tenants:,} tenants", tuple(lines), tenants, "tenants", (note, first))


class _Night:
    """Executes the jobs' runs one after the other."""

    def __init__(self, instance: dg.DagsterInstance, server: BenchPostgres, driver: Driver, keys: list[str]) -> None:
        self._instance, self._server, self._driver = instance, server, driver
        instance.add_dynamic_partitions(PARTITIONS, keys)

    def take(self, jobs: Sequence[str], customers: Sequence[CustomerId], *, size: int) -> dict[str, Sample]:
        samples = {}
        for job in jobs:
            _announce(f"{job}: {len(customers):,} tenants, {size} a run")
            self._server.settle()
            samples[job] = self._driver.measure(partial(self._run, job, customers, size), self._server)
        return samples

    def _run(self, job: str, customers: Sequence[CustomerId], size: int) -> None:
        # Late: it takes seconds, which whoever lists the benchmarks would wait for.
        from clientmgr_dagster.definitions import defs

        definition = defs.resolve_job_def(job)
        for request in requests_for_all([str(one) for one in customers], name=job, moment="night", size=size):
            definition.execute_in_process(
                run_config=QUIET,
                instance=self._instance,
                partition_key=request.partition_key,
                tags={**request.tags, SCHEDULE_TAG: job},
            )

    def log_bytes(self) -> int:
        with psycopg.connect(self._server.url("night_dagster")) as connection:
            return int(connection.execute("SELECT pg_total_relation_size('event_logs')").fetchall()[0][0])


@contextlib.contextmanager
def _stores(workload: Workload) -> Iterator[None]:
    """What the jobs' settings name: the tenants, and the contacts that some of them deleted."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        bigquery = BigQueryStandIn(Path(folder) / "bigquery")
        bigquery.start()
        try:
            bigquery.execute(f"CREATE TABLE {TABLE} (customer_id INT64, contact_id INT64, deleted_at TIMESTAMP)")
            bigquery.execute(
                f"""INSERT INTO {TABLE}
                SELECT {workload.customers[0]} + t, {FIRST_CONTACT} + n, TIMESTAMP '2026-11-15 00:00:00+00:00'
                FROM UNNEST(GENERATE_ARRAY(0, {len(workload.customers) - 1})) AS t,
                    UNNEST(GENERATE_ARRAY(1, {DELETED})) AS n
                WHERE MOD(t, {ONE_IN}) = 0"""
            )
            # Orphans since the same moment as for plain SQL, with a margin: the night takes a while.
            threshold = datetime.now(UTC) - ORPHANED_BEFORE + timedelta(hours=6)
            changed = {
                **bigquery.settings,
                "data_dir": Path(folder),
                "legacy_store": "none",
                "orphan_threshold_days": threshold / timedelta(days=1),
            }
            os.environ |= workload.settings.model_copy(update=changed).environment()
            yield
        finally:
            bigquery.stop()
            os.environ.clear()
            os.environ.update(before)


def _expected(workload: Workload) -> dict[str, dict[int, int]]:
    """By what plain SQL found: orphans gone, devices left, contacts published."""
    orphans, numbers = (workload.results(BESIDE[job]) for job in (ORPHANS, METRICS))
    gone = {int(one): row[0] for one, row in orphans.items()}  # type: ignore[index]  # rows
    left = {int(one): row[0] - gone.get(int(one), 0) for one, row in numbers.items()}  # type: ignore[index]  # rows
    return {"deleted": gone, "left": left, "published": dict.fromkeys(map(int, workload.customers[::ONE_IN]), DELETED)}


def _found(workload: Workload) -> dict[str, dict[int, int]]:
    own = list(workload.customers)
    with psycopg.connect(workload.database.url) as connection:

        def numbers(table: str, column: str) -> dict[int, int]:
            query = f"SELECT customer_id, {column} FROM clientmgr.{table} WHERE customer_id = ANY(%s) AND {column} > 0"
            return dict(connection.execute(query.encode(), (own,)).fetchall())

        return {
            "deleted": numbers("orphan_deletion_results", "deleted"),
            "left": numbers("dashboard_tenant_metrics", "devices"),
            "published": numbers("contact_deletion_watermarks", "published"),
        }


def _times(sample: Sample, times: float) -> Sample:
    server_cpu_s = None if sample.server_cpu_s is None else sample.server_cpu_s * times
    return Sample(sample.wall_s * times, sample.client_cpu_s * times, server_cpu_s)


def _sum(samples: Mapping[str, Sample]) -> Sample:
    found = samples.values()
    server_cpu_s = sum(one.server_cpu_s or 0 for one in found)
    return Sample(sum(one.wall_s for one in found), sum(one.client_cpu_s for one in found), server_cpu_s)


def _announce(what: str) -> None:
    print(f"night: {what}", file=sys.stderr)
