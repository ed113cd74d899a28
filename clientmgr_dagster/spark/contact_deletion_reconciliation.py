"""All that customers ever deleted in BigQuery, joined with the contacts that have devices here: one job for a chunk.

Of a tenant only its distinct contact ids travel, which PostgreSQL takes from an index; of BigQuery three columns of the
chunk's customers. BigQuery says how many rows it found: up to `BROADCAST_ROWS` they are sent to every task, and the
contacts are joined where they are read. Beyond that both sides are shuffled.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.contact_deletions.bigquery import StorageAccess, StoredResult
from clientmgr_dagster.spark.bigquery_source import read_bigquery
from clientmgr_dagster.spark.deleted_contacts import SCHEMA
from clientmgr_dagster.spark.device_columns import ERROR
from clientmgr_dagster.spark.devices import reading_conninfo
from clientmgr_dagster.spark.results_writer import ResultWrite, write_results
from clientmgr_dagster.spark.snapshots import shared_snapshot
from clientmgr_dagster.spark.tenant_source import Request, read_tenants

STEP: Final = "contact_deletion_reconciliation"
TARGET: Final = "unerased_contacts"
BROADCAST_ROWS: Final = 1_000_000
"""About 100 MB in the driver and in each executor."""


def unerased(contacts: DataFrame, deleted: DataFrame, *, found_at: datetime, broadcast: bool) -> DataFrame:
    """The deletions of contacts that have devices, as rows of `unerased_contacts`.

    `contacts` has each of a customer's contacts once, and a row with only an `error` for a customer that could not be
    read: that is why its side of the join is kept whole.
    """
    # Said, as Spark does not know how large what comes from Python is, and would shuffle both.
    side = F.broadcast(deleted) if broadcast else deleted
    joined = contacts.join(side, ["customer_id", "contact_id"], "left")
    return joined.filter(F.col("deleted_at").isNotNull() | F.col(ERROR).isNotNull()).select(
        "customer_id", "contact_id", "deleted_at", F.lit(found_at).alias("found_at"), ERROR
    )


def find_unerased(
    spark: SparkSession,
    database: Database,
    settings: Settings,
    customers: Sequence[CustomerId],
    stored: StoredResult,
    *,
    searched_at: datetime,
    run_id: str,
) -> None:
    """Put the customers' deleted contacts that still have devices in `unerased_contacts`, in place of the last ones.

    `stored` is all that they ever deleted, up to `searched_at`: what says that it is deleted in the future waits.
    A tenant that can't be read keeps what it has and is recorded in `batch_failures`.
    """
    if not customers:
        return
    schema = f"customer_id bigint, contact_id bigint, {ERROR} string"
    conninfo = reading_conninfo(database, settings)
    with shared_snapshot(conninfo, settings, customers) as snapshot:
        request = Request(
            tuple(customers),
            settings.spark_partitions,
            query="linked_contacts",
            snapshot=snapshot,
            failures_as_rows=True,
        )
        contacts = read_tenants(spark, conninfo, request, schema)
        access = StorageAccess.from_settings(settings)
        deleted = read_bigquery(spark, access, stored.path, SCHEMA, settings.spark_partitions)
        write_results(
            unerased(contacts, deleted, found_at=searched_at, broadcast=stored.rows <= BROADCAST_ROWS),
            database.conninfo(Role.WRITER),
            ResultWrite(TARGET, run_id, STEP, tuple(customers)),
        )
