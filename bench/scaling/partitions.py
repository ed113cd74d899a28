"""Dagster's dynamic partitions as tenants are added: adding, listing, a schedule's requests, a run over a chunk."""

from collections.abc import Iterator, Sequence
from functools import partial

import dagster as dg
import psycopg

from bench.harness.dagster_instance import QUIET, dagster_instance
from bench.harness.measure import measure
from bench.harness.servers import BenchPostgres
from bench.scaling.measured import Partitions
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.portions import portions
from clientmgr_dagster.chunks import requests_for_all
from clientmgr_dagster.metadata import log_partitions
from clientmgr_dagster.partitions import PARTITIONS
from clientmgr_dagster.policies import PER_TENANT, TENANTS_PER_RUN

DATABASE, JOB, ADDED_AT_ONCE = "scaling_dagster", "scaling_job", 1000


def measure_partitions(server: BenchPostgres, sizes: Sequence[int]) -> Iterator[Partitions]:
    server.create_database(DATABASE)
    with dagster_instance(server, DATABASE) as instance:
        job, keys = _job(), list[str]()
        for size in sizes:
            newcomers = [str(number) for number in range(len(keys) + 1, size + 1)]
            keys += newcomers
            added = measure(partial(_add, instance, newcomers))
            listed = measure(partial(instance.get_dynamic_partitions, PARTITIONS))
            requests: list[dg.RunRequest] = []
            asked = measure(partial(_ask, instance, requests))
            # The last chunk: Dagster looks its ends up among all keys.
            tags, partition = requests[-1].tags, requests[-1].partition_key
            run = partial(job.execute_in_process, run_config=QUIET, instance=instance, tags=tags)
            ran = measure(partial(run, partition_key=partition))
            yield Partitions(
                size,
                len(newcomers),
                added.wall_s,
                listed.wall_s,
                len(requests),
                asked.wall_s,
                (size - 1) % TENANTS_PER_RUN + 1,
                ran.wall_s,
                _log_bytes(server),
            )
    server.drop_database(DATABASE)


def _add(instance: dg.DagsterInstance, keys: Sequence[str]) -> None:
    for portion in portions(keys, ADDED_AT_ONCE):
        instance.add_dynamic_partitions(PARTITIONS, portion)


def _ask(instance: dg.DagsterInstance, requests: list[dg.RunRequest]) -> None:
    requests += requests_for_all(instance.get_dynamic_partitions(PARTITIONS), name=JOB, moment="moment")


def _log_bytes(server: BenchPostgres) -> int:
    with psycopg.connect(server.url(DATABASE)) as connection:
        return int(connection.execute("SELECT pg_total_relation_size('event_logs')").fetchall()[0][0])


def _job() -> dg.JobDefinition:
    @dg.asset(name="scaling", **PER_TENANT)
    def step(context: dg.AssetExecutionContext) -> None:
        log_partitions(context, "scaling", {CustomerId(int(key)): {"n": 1} for key in context.partition_keys}.items())

    job = dg.define_asset_job(JOB, dg.AssetSelection.assets("scaling"))
    return dg.Definitions(assets=[step], jobs=[job], executor=dg.in_process_executor).resolve_job_def(JOB)
