"""The dashboard's numbers with Spark: one pass over all tenants, the counting inside PostgreSQL.

What meets another store (DynamoDB) is joined here; the rest comes as one row a tenant.
"""

from collections.abc import Sequence
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from clientmgr.database import Database, Role
from clientmgr.settings import Settings
from clientmgr.tenants.names import CustomerId
from clientmgr_dagster.spark.devices import reading_conninfo
from clientmgr_dagster.spark.results_writer import ResultWrite, write_results
from clientmgr_dagster.spark.tenant_source import Request, read_tenants

STEP = "dashboard_tenant_metrics"
NOT_CHECKED, SYNC_FAILED = "not checked", "failed"

COUNTS = (
    "devices bigint, devices_by_platform string, devices_by_provider string, push_enabled bigint, tokens_none bigint, "
    "tokens_valid bigint, tokens_invalid bigint, tokens_superseded bigint, contacts bigint, linked_devices bigint, "
    "without_contact bigint, orphans bigint, created_24h bigint, created_7d bigint, last_write_at timestamp, "
    "table_bytes bigint"
)
SYNC_COUNTS = (
    "sync_dynamodb_devices",
    "sync_sampled",
    "sync_missing_in_dynamodb",
    "sync_missing_in_postgres",
    "sync_different",
)


def tenant_counts(
    spark: SparkSession,
    database: Database,
    settings: Settings,
    customers: Sequence[CustomerId],
    *,
    collected_at: datetime,
    orphaned_before: datetime,
) -> DataFrame:
    """A row for each tenant; one that could not be read has only its `error`."""
    request = Request(
        tuple(customers),
        settings.spark_partitions,
        query="dashboard_metrics",
        parameters={"collected_at": collected_at.isoformat(), "orphaned_before": orphaned_before.isoformat()},
        failures_as_rows=True,
    )
    schema = f"customer_id bigint, {COUNTS}, error string"
    return read_tenants(spark, reading_conninfo(database, settings), request, schema)


def metrics(counts: DataFrame, sync: DataFrame | str, *, collected_at: datetime, run_id: str) -> DataFrame:
    """The rows of `dashboard_tenant_metrics`. Where `sync` is a word, nothing was compared, and it says why."""
    if isinstance(sync, str):
        joined = counts.withColumn("sync_status", F.lit(sync))
        for name in SYNC_COUNTS:
            joined = joined.withColumn(name, F.lit(None).cast("bigint"))
        joined = joined.withColumn("sync_different_fields", F.lit(None).cast("string"))
    else:
        joined = counts.join(F.broadcast(sync), "customer_id", "left").fillna(SYNC_FAILED, "sync_status")
    names = [field.split()[0] for field in COUNTS.split(", ")]
    return joined.select(
        "customer_id",
        F.lit(collected_at).alias("collected_at"),
        F.lit(run_id).alias("run_id"),
        F.when(F.col("error").isNull(), "ok").otherwise("failed").alias("status"),
        F.col("error").alias("failure"),
        *names,
        "sync_status",
        *SYNC_COUNTS,
        "sync_different_fields",
    )


def collect_metrics(
    spark: SparkSession,
    database: Database,
    settings: Settings,
    customers: Sequence[CustomerId],
    *,
    collected_at: datetime,
    orphaned_before: datetime,
    run_id: str,
    sync: DataFrame | str = NOT_CHECKED,
) -> None:
    """Put the tenants' numbers in `dashboard_tenant_metrics`, in place of the last ones."""
    counts = tenant_counts(
        spark, database, settings, customers, collected_at=collected_at, orphaned_before=orphaned_before
    )
    write_results(
        metrics(counts, sync, collected_at=collected_at, run_id=run_id),
        database.conninfo(Role.WRITER),
        ResultWrite("dashboard_tenant_metrics", run_id, STEP, tuple(customers)),
    )
