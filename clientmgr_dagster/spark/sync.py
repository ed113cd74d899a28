"""Comparing tenants with DynamoDB by Spark: the samples of both stores meet, tenant by tenant, in the tasks.

Per tenant only its sample travels, so that neither the driver nor a task ever holds a table.
"""

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.tenant_metrics.sync import DIFFERENT, MISSING_IN_DYNAMODB, MISSING_IN_POSTGRES, Sampled, compare
from clientmgr_dagster.spark.devices import reading_conninfo
from clientmgr_dagster.spark.dynamodb_source import DeviceScan, read_dynamodb, scan_access
from clientmgr_dagster.spark.snapshots import WHOLE_TABLES, Snapshot
from clientmgr_dagster.spark.tenant_source import Request, read_tenants

NOT_CHECKED, CHECKED, FAILED = "not checked", "checked", "failed"

COLUMNS = (
    "sync_status string, sync_failure string, sync_dynamodb_devices bigint, sync_sampled bigint, "
    "sync_missing_in_dynamodb bigint, sync_missing_in_postgres bigint, sync_different bigint, "
    "sync_different_fields string, sync_differences string"
)
"""Of `dashboard_tenant_metrics`."""
SCHEMA = f"customer_id bigint, {COLUMNS}"

_SAMPLE = "customer_id bigint, device_key string, sample_hash string, contact_id string, fields string, error string"


def is_wanted(settings: Settings) -> bool:
    """Whether there is a DynamoDB to compare with."""
    asked_for = settings.sync_validation == "on"
    is_ours = settings.sync_validation == "auto" and bool(settings.dynamodb_endpoint)
    return settings.has_legacy_store and (asked_for or is_ours)


def sync_results(
    spark: SparkSession,
    database: Database,
    settings: Settings,
    customers: tuple[CustomerId, ...],
    *,
    snapshot: Snapshot = WHOLE_TABLES,
) -> DataFrame:
    """A row for each customer. One that could not be read, here or there, has `failed` and says why."""
    size = settings.sync_sample_size
    request = Request(
        customers,
        settings.spark_partitions,
        query="sync_sample",
        parameters={"size": size},
        snapshot=snapshot,
        failures_as_rows=True,
    )
    rows = read_tenants(spark, reading_conninfo(database, settings), request, _SAMPLE)
    here = rows.withColumn("items", F.lit(None).cast("bigint")).withColumn("is_postgres", F.lit(True))
    items = read_dynamodb(spark, scan_access(settings), DeviceScan.from_settings(settings, customers, size))
    both = here.unionByName(items.withColumn("is_postgres", F.lit(False)))

    def compare_tenant(found: pa.Table) -> pa.Table:
        return pa.Table.from_pylist([tenant_result(found, size)], schema=_ARROW_SCHEMA)

    return both.groupBy("customer_id").applyInArrow(compare_tenant, SCHEMA)


def tenant_result(found: pa.Table, size: int) -> dict[str, object]:
    """One customer's row, from all that was read of it."""
    rows = found.to_pylist()
    result: dict[str, object] = {"customer_id": rows[0]["customer_id"]}
    errors = sorted({row["error"] for row in rows if row["error"] is not None})
    if errors:
        return {**result, "sync_status": FAILED, "sync_failure": errors[0]}
    sides: dict[bool, list[Sampled]] = {True: [], False: []}
    for row in rows:
        if row["device_key"] is not None:
            sides[row["is_postgres"]].append(Sampled(*(row[name] for name in Sampled._fields)))
    compared = compare(sides[True], sides[False], size)
    return {
        **result,
        "sync_status": CHECKED,
        "sync_dynamodb_devices": sum(row["items"] or 0 for row in rows),
        "sync_sampled": compared.sampled,
        "sync_missing_in_dynamodb": compared.count(MISSING_IN_DYNAMODB),
        "sync_missing_in_postgres": compared.count(MISSING_IN_POSTGRES),
        "sync_different": compared.count(DIFFERENT),
        "sync_different_fields": msgspec.json.encode(compared.different_fields()).decode(),
        "sync_differences": msgspec.json.encode(compared.shown()).decode(),
    }


_ARROW_SCHEMA = pa.schema(
    [
        (name, pa.int64() if kind == "bigint" else pa.string())
        for name, kind in (column.split() for column in SCHEMA.split(", "))
    ]
)
