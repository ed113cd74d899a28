"""The benchmarks with Spark run, and their variants find the same. Here for the session: others have none."""

import pytest
from pyspark.sql import SparkSession

import bench.batch
import bench.night
from bench.batch.session import Driver
from bench.harness.servers import BenchPostgres
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from clientmgr.local.standins.server import standins_are_installed


@pytest.mark.bench
def test_the_variants_of_the_batch_benchmark_do_the_same_work(
    spark: SparkSession, postgres_server: EmbeddedPostgres
) -> None:
    where = bench.batch.Bench(BenchPostgres(postgres_server, sync_disk=False), Driver(spark, None), rounds=1)

    tables = list(bench.batch.compare(where, tenants=2, devices=600, small_tenants=2))

    assert [table.title.partition(":")[0] for table in tables] == ["Orphan detection", "Dashboard collection"] * 2
    for table in tables:
        variants = [line.variant for line in table.lines]
        assert variants == ["ours", "Spark, a job per tenant", "plain SQL"]
        assert any("JDBC by default: absent" in note for note in table.notes)
    assert any("ms a tenant" in note for note in tables[-1].notes)


@pytest.mark.bench
@pytest.mark.skipif(not standins_are_installed(), reason="the stand-ins are not installed: make standins")
def test_the_night_s_benchmark_runs_and_leaves_what_plain_sql_finds(
    spark: SparkSession, postgres_server: EmbeddedPostgres
) -> None:
    where = BenchPostgres(postgres_server, sync_disk=False)

    *jobs, whole = bench.night.compare(where, Driver(spark, None), tenants=3, runs_of_one=1)

    assert [table.title.partition(":")[0] for table in jobs] == list(bench.night.NIGHT)
    assert [len(table.lines) for table in jobs] == [2, 2, 3, 2, 3]
    assert whole.title == "The whole night: 3 tenants"
