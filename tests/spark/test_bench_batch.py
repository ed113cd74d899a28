"""The batch benchmark runs, and its variants find the same. Here and not with the other benchmarks for its session."""

import pytest
from pyspark.sql import SparkSession

import bench.batch
from bench.batch.session import Driver
from bench.harness.servers import BenchPostgres
from clientmgr.local.embedded.postgres import EmbeddedPostgres


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
