"""A scan of DynamoDB's table with Spark: the items of the customers that are migrated, as they are."""

from collections.abc import Sequence
from datetime import datetime

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr_dagster.spark.dynamodb_source import DeviceScan, read_dynamodb, scan_access
from clientmgr_dagster.spark.results_writer import ResultWrite, write_results
from clientmgr_dagster.spark.scan_turns import turn_to_scan

STEP = "legacy_devices"


def scan_legacy_devices(
    spark: SparkSession,
    database: Database,
    settings: Settings,
    customers: Sequence[CustomerId],
    *,
    scanned_at: datetime,
    run_id: str,
) -> None:
    """Put the customers' items in `legacy_devices`, in place of what the last scan left.

    The table has no index by customer: one scan serves all of them. If a segment can't be read, everybody keeps what
    the last scan found, and it is recorded in `batch_failures`.
    """
    scan = DeviceScan.from_settings(settings, customers)
    with turn_to_scan(database, settings.dynamodb_devices_table):
        items = read_dynamodb(spark, scan_access(settings), scan)
        write_results(
            items.withColumn("scanned_at", F.lit(scanned_at)),
            database.conninfo(Role.WRITER),
            ResultWrite("legacy_devices", run_id, STEP, tuple(customers), {"scanned_at": scanned_at.isoformat()}),
        )
