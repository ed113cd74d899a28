"""Finding orphans with Spark: one job for a chunk of tenants, the threshold applied inside PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # as everybody calls it

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr_dagster.spark.device_columns import ERROR
from clientmgr_dagster.spark.devices import read_devices, reading_conninfo
from clientmgr_dagster.spark.results_writer import ResultWrite, write_results
from clientmgr_dagster.spark.snapshots import shared_snapshot

STEP = "orphan_candidates"


def orphans(devices: DataFrame, orphaned_before: datetime, found_at: datetime) -> DataFrame:
    """Devices that are silent since before then, as rows of `orphan_candidates`."""
    # `silent_since` alone decides. The index on `orphaned_since` has those without a contact, where they are few.
    silent = F.col("orphaned_since").isNotNull() & (F.col("silent_since") < F.lit(orphaned_before))
    return devices.filter(silent).select(
        "customer_id", "application_code", "client_id", "silent_since", F.lit(found_at).alias("found_at"), ERROR
    )


def find_orphans(
    spark: SparkSession,
    database: Database,
    settings: Settings,
    customers: Sequence[CustomerId],
    *,
    orphaned_before: datetime,
    threshold: timedelta,
    found_at: datetime,
    run_id: str,
) -> None:
    """Put the tenants' orphans in `orphan_candidates`, in place of what was found before, and note the search.

    `threshold` is only noted: what checks the candidates is not to trust what `orphaned_before` was reckoned to be.
    A tenant that can't be read keeps what it has and is recorded in `batch_failures`.
    """
    columns = ["application_code", "client_id", "orphaned_since", "silent_since"]
    recorded = {"searched_at": found_at.isoformat(), "threshold_days": threshold / timedelta(days=1)}
    with shared_snapshot(reading_conninfo(database, settings), settings, customers) as snapshot:
        devices = read_devices(spark, database, settings, customers, columns, snapshot=snapshot, failures_as_rows=True)
        write_results(
            orphans(devices, orphaned_before, found_at),
            database.conninfo(Role.WRITER),
            ResultWrite("orphan_candidates", run_id, STEP, tuple(customers), recorded),
        )
