"""The devices of many tenants as one DataFrame."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr_dagster.spark.device_columns import schema_of
from clientmgr_dagster.spark.snapshots import WHOLE_TABLES, Snapshot
from clientmgr_dagster.spark.tenant_source import Request, read_tenants


def read_devices(
    spark: SparkSession,
    database: Database,
    settings: Settings,
    customers: Sequence[CustomerId],
    columns: Sequence[str],
    *,
    snapshot: Snapshot = WHOLE_TABLES,
    failures_as_rows: bool = False,
) -> DataFrame:
    """These columns of the tenants' devices, with `customer_id` first.

    With a `shared_snapshot`, which must last until the result is used, several tasks share the work of a huge tenant.

    With `failures_as_rows` there is an `error` column last, and a tenant that can't be read is a row that has only it.
    """
    request = Request(tuple(customers), settings.spark_partitions, snapshot=snapshot, failures_as_rows=failures_as_rows)
    schema = schema_of(columns, with_errors=failures_as_rows)
    return read_tenants(spark, reading_conninfo(database, settings), request, schema)


def reading_conninfo(database: Database, settings: Settings) -> str:
    """As the reader, with a lock timeout: a tenant whose table stays locked counts as failed."""
    return database.conninfo(Role.READER, lock_timeout_ms=settings.tenant_lock_timeout_ms)
