"""Deleted contacts from BigQuery with Spark: a page of them into `deleted_contacts`, as one job."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import cast

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.base.settings import Settings
from clientmgr.contact_deletions.bigquery import StorageAccess, StoredResult
from clientmgr.contact_deletions.paging import CustomersRows
from clientmgr_dagster.spark.bigquery_source import read_bigquery
from clientmgr_dagster.spark.results_writer import ResultWrite, write_results

STEP = "deleted_contacts"
SCHEMA = "customer_id bigint, contact_id bigint, deleted_at timestamp"


def contact_hashes(settings: Settings) -> Callable[[str, str], Column]:
    """Of a customer's column and a contact's: the hash of each. The key is pickled with it, and in no plan or log."""
    hashes = KeyedHashes.from_settings(settings)

    def contact_hash(customers: pa.Array, contacts: pa.Array) -> pa.Array:
        pairs = zip(customers.to_pylist(), contacts.to_pylist(), strict=True)
        return pa.array([hashes.contact(customer, contact) for customer, contact in pairs], pa.binary())

    return cast(Callable[[str, str], Column], arrow_udf(contact_hash, "binary"))  # type: ignore[call-overload]


def store_page(
    spark: SparkSession,
    database: Database,
    settings: Settings,
    stored: StoredResult,
    customers: Sequence[CustomerId],
    *,
    run_id: str,
) -> list[CustomersRows]:
    """Put a stored page in `deleted_contacts`, and say what it had. What is there already is not put in twice."""
    # Kept: it is written, and then asked where it ended.
    access = StorageAccess.from_settings(settings)
    page = read_bigquery(spark, access, stored.path, SCHEMA, settings.spark_partitions).persist()
    try:
        write_results(
            page.withColumn("found_at", F.lit(datetime.now(UTC))).withColumn(
                "contact_hash", contact_hashes(settings)("customer_id", "contact_id")
            ),
            database.conninfo(Role.WRITER),
            ResultWrite("deleted_contacts", run_id, STEP, tuple(customers)),
        )
        ends = (
            page.groupBy("customer_id")
            .agg(F.count("*").alias("rows"), F.max(F.struct("deleted_at", "contact_id")).alias("last"))
            .orderBy("customer_id")
            .collect()
        )
    finally:
        page.unpersist()
    return [
        # Spark gives times in the machine's zone and without saying so.
        CustomersRows(CustomerId(end.customer_id), end.rows, end.last.deleted_at.astimezone(UTC), end.last.contact_id)
        for end in ends
    ]
