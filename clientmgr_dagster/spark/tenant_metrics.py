"""The dashboard's numbers with Spark: one pass over all tenants, the counting inside PostgreSQL.

What meets another store (DynamoDB) is joined here; the rest comes as one row a tenant.
"""

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr_dagster.spark import sync
from clientmgr_dagster.spark.devices import reading_conninfo
from clientmgr_dagster.spark.partial_counts import one_row_each
from clientmgr_dagster.spark.results_writer import ResultWrite, write_results
from clientmgr_dagster.spark.scan_turns import turn_to_scan
from clientmgr_dagster.spark.snapshots import WHOLE_TABLES, Snapshot, shared_snapshot
from clientmgr_dagster.spark.tenant_source import Request, read_tenants

STEP = "dashboard_tenant_metrics"

COUNTS = (
    "devices bigint, devices_by_platform string, devices_by_provider string, push_enabled bigint, tokens_none bigint, "
    "tokens_valid bigint, tokens_invalid bigint, tokens_superseded bigint, contacts bigint, linked_devices bigint, "
    "without_contact bigint, orphans bigint, created_24h bigint, created_7d bigint, last_write_at timestamp, "
    "table_bytes bigint"
)


def tenant_counts(
    spark: SparkSession,
    database: Database,
    settings: Settings,
    customers: Sequence[CustomerId],
    *,
    collected_at: datetime,
    orphaned_before: datetime | None,
    snapshot: Snapshot = WHOLE_TABLES,
) -> DataFrame:
    """A row for each tenant; one that could not be read has only its `error`. None: nothing counts as an orphan."""
    before = "-infinity" if orphaned_before is None else orphaned_before.isoformat()
    request = Request(
        tuple(customers),
        settings.spark_partitions,
        query="dashboard_metrics",
        parameters={"collected_at": collected_at.isoformat(), "orphaned_before": before},
        snapshot=snapshot,
        failures_as_rows=True,
    )
    schema = f"customer_id bigint, {COUNTS}, error string"
    counts = read_tenants(spark, reading_conninfo(database, settings), request, schema)
    return one_row_each(counts) if snapshot.tables else counts


def metrics(counts: DataFrame, compared: DataFrame | None, *, collected_at: datetime, run_id: str) -> DataFrame:
    """The rows of `dashboard_tenant_metrics`. Without `compared` nothing was compared with DynamoDB."""
    if compared is None:
        joined = counts.withColumn("sync_status", F.lit(sync.NOT_CHECKED))
        for name, kind in _fields(sync.COLUMNS)[1:]:
            joined = joined.withColumn(name, F.lit(None).cast(kind))
    else:
        joined = counts.join(compared, "customer_id", "left").fillna(sync.FAILED, "sync_status")
    return joined.select(
        "customer_id",
        F.lit(collected_at).alias("collected_at"),
        F.lit(run_id).alias("run_id"),
        F.when(F.col("error").isNull(), "ok").otherwise("failed").alias("status"),
        F.col("error").alias("failure"),
        *(name for name, _ in _fields(COUNTS)),
        *(name for name, _ in _fields(sync.COLUMNS)),
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
    without_orphans: Collection[CustomerId] = frozenset(),
) -> None:
    """Put the tenants' numbers in `dashboard_tenant_metrics`, in place of the last ones.

    `without_orphans` are tenants that have none, whatever their devices are like.
    """
    wanted = sync.is_wanted(settings)
    # The turn first: who waits for it must not hold a snapshot.
    turn = turn_to_scan(database, settings.dynamodb_devices_table) if wanted else nullcontext()
    with turn, shared_snapshot(reading_conninfo(database, settings), settings, customers) as snapshot:
        compared = sync.sync_results(spark, database, settings, tuple(customers), snapshot=snapshot) if wanted else None

        def count(group: Sequence[CustomerId], before: datetime | None) -> DataFrame:
            return tenant_counts(
                spark, database, settings, group, collected_at=collected_at, orphaned_before=before, snapshot=snapshot
            )

        counts = count([customer for customer in customers if customer not in without_orphans], orphaned_before)
        if without_orphans:
            counts = counts.union(count([customer for customer in customers if customer in without_orphans], None))
        write_results(
            metrics(counts, compared, collected_at=collected_at, run_id=run_id),
            database.conninfo(Role.WRITER),
            ResultWrite("dashboard_tenant_metrics", run_id, STEP, tuple(customers)),
        )


def _fields(schema: str) -> list[tuple[str, str]]:
    """Names and types of a schema's columns."""
    return [(name, kind) for name, kind in (column.split() for column in schema.split(", "))]
