"""Spark's data source for the legacy store's devices: a task for each segment of one parallel scan of the table.

For a comparison a scan answers two questions: how many devices each tenant has there, and which of them are the sample.
Most items are counted and hashed and forgotten in the task; tokens leave it only as digests. For an import it gives the
tenants' items whole. It takes no more than a share of the table's capacity (`scan_pace.py`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import pyarrow as pa
from botocore.exceptions import BotoCoreError, ClientError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from clientmgr.base.customer_ids import CustomerId, parse_customer_id
from clientmgr.base.settings import Settings
from clientmgr.contracts.device_fields import LEGACY_FIELDS, SENDERS_FIELDS
from clientmgr.devices.legacy.dynamodb import DynamoDbAccess
from clientmgr.tenant_metrics.sync import Smallest, fields_of_item, sample_hash
from clientmgr_dagster.spark.registration import register_once
from clientmgr_dagster.spark.scan_pace import ScanPace, table_capacity

FORMAT = "clientmgr_dynamodb"
LONGEST_ERROR = 500
SCHEMA: Final = (
    "customer_id bigint, device_key string, sample_hash string, contact_id string, fields string, "
    "items bigint, error string"
)
"""A device of the sample, or how many `items` a segment has of a customer, or why it could not be read."""

WHOLE_SCHEMA: Final = "customer_id bigint, device_key string, contact_id string, item string, error string"
"""An item with all that the mapper would read of it, as DynamoDB's JSON, or why a segment could not be read."""

_KEYS: Final = ("contactKey", "deviceKey")
# Anything else that items may have stays where it is.
_COMPARED: Final = (*_KEYS, *(field.legacy for field in LEGACY_FIELDS if field.legacy))
_IMPORTED: Final = (*_KEYS, *(field.legacy for field in SENDERS_FIELDS if field.legacy))
_ANSWERED_ERRORS: Final = (BotoCoreError, ClientError)


@dataclass(frozen=True)
class DeviceScan:
    """Whose devices are counted and sampled, or taken whole. It travels as options: nothing in it is secret."""

    customers: tuple[CustomerId, ...]
    segments: int
    sample_size: int = 0
    """0: all of them, whole."""
    share: float = 0.5
    """Of the table's read capacity, for all segments together."""
    units: float = 0.0
    """Read units a second, in place of a share; 0: the share counts."""

    @classmethod
    def from_settings(cls, settings: Settings, customers: Sequence[CustomerId], sample_size: int = 0) -> "DeviceScan":
        share, units = settings.dynamodb_scan_share, settings.dynamodb_scan_units
        return cls(tuple(customers), settings.spark_partitions, sample_size, share=share, units=units)

    def options(self) -> dict[str, str]:
        return {
            "customers": ",".join(map(str, self.customers)),
            "segments": str(self.segments),
            "sample_size": str(self.sample_size),
            "share": str(self.share),
            "units": str(self.units),
        }

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "DeviceScan":
        customers = tuple(parse_customer_id(one) for one in options["customers"].split(",") if one)
        return cls(
            customers,
            segments=int(options["segments"]),
            sample_size=int(options["sample_size"]),
            share=float(options["share"]),
            units=float(options["units"]),
        )


@dataclass
class Segment(InputPartition):
    """A part of the scan; with an `error` there is none, because the table does not answer."""

    number: int
    units: float = 0.0
    """Its part of the read units a second. Segments that wait for a task leave theirs unused: the rate is a limit."""
    error: str = ""


class DynamoDbReader(DataSourceReader):
    """Asks once on the driver whether the table answers at all, and scans a segment of it in each task.

    A store that is down or throttles beyond patience is not the job's failure: every customer gets a row with the
    `error`, because any of them may have had devices in what could not be read.
    """

    def __init__(self, access: DynamoDbAccess, scan: DeviceScan, schema: StructType) -> None:
        self._access = access
        self._scan = scan
        self._schema = schema

    def partitions(self) -> Sequence[Segment]:
        client, table = self._access.client(), self._access.table
        try:
            client.scan(TableName=table, Limit=1)
            units = self._scan.units or self._scan.share * table_capacity(
                client.describe_table(TableName=table)["Table"]
            )
        except _ANSWERED_ERRORS as error:
            return [Segment(0, error=_text_of(error))]
        return [Segment(number, units / self._scan.segments) for number in range(self._scan.segments)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        segment = cast(Segment, partition)
        if segment.error:
            yield self._failure(segment.error)
            return
        taking: _Sampling | _Whole = _Sampling(self._scan) if self._scan.sample_size else _Whole(self._scan)
        try:
            for page in self._pages(segment):
                if rows := [row for item in page if (row := taking.row(item)) is not None]:
                    yield self._batch(rows)
        except _ANSWERED_ERRORS as error:
            yield self._failure(_text_of(error))
            return
        if rows := taking.at_the_end():
            yield self._batch(rows)

    def _pages(self, segment: Segment) -> Iterator[list[dict[str, Any]]]:
        pace = ScanPace(segment.units)
        client = self._access.client()
        attributes = _COMPARED if self._scan.sample_size else _IMPORTED
        names = {f"#{number}": name for number, name in enumerate(attributes)}
        request = {
            "TableName": self._access.table,
            "Segment": segment.number,
            "TotalSegments": self._scan.segments,
            # By placeholders: some of the names are DynamoDB's own words.
            "ProjectionExpression": ", ".join(names),
            "ExpressionAttributeNames": names,
            "ReturnConsumedCapacity": "TOTAL",
        }
        while True:
            pace.wait()
            page = client.scan(**request, Limit=pace.items)
            pace.took(page)
            yield page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def _failure(self, error: str) -> pa.RecordBatch:
        return self._batch([{"customer_id": customer, "error": error} for customer in self._scan.customers])

    def _batch(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        schema = to_arrow_schema(self._schema, timezone="UTC")
        return pa.RecordBatch.from_pylist(rows, schema=schema)


class _Sampling:
    """Counts one segment's items by customer, and picks those that may be of the sample."""

    def __init__(self, scan: DeviceScan) -> None:
        self.items = {str(customer): 0 for customer in scan.customers}
        self._smallest = {name: Smallest(scan.sample_size) for name in self.items}

    def row(self, item: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
        """The item as a row of the sample; None: it is not of it, or of nobody that we know."""
        customer, _, contact_id = item["contactKey"]["S"].partition("#")
        if customer not in self.items:
            return None
        self.items[customer] += 1
        device_key = item["deviceKey"]["S"]
        found = sample_hash(customer, device_key)
        if not self._smallest[customer].admits(int(found, 16)):
            return None
        return {
            "customer_id": int(customer),
            "device_key": device_key,
            "sample_hash": found,
            "contact_id": contact_id,
            "fields": fields_of_item(item),
        }

    def at_the_end(self) -> list[dict[str, Any]]:
        """Of each customer, also where there is nothing: so that none goes without a word."""
        return [{"customer_id": int(name), "items": count} for name, count in self.items.items()]


class _Whole:
    """Takes the items of some customers as they are."""

    def __init__(self, scan: DeviceScan) -> None:
        self._customers = {str(customer) for customer in scan.customers}

    def row(self, item: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
        customer, _, contact_id = item["contactKey"]["S"].partition("#")
        if customer not in self._customers:
            return None
        return {
            "customer_id": int(customer),
            "device_key": item["deviceKey"]["S"],
            "contact_id": contact_id,
            "item": json.dumps(item, ensure_ascii=False),
        }

    def at_the_end(self) -> list[dict[str, Any]]:
        return []


def dynamodb_source(access: DynamoDbAccess) -> type[DataSource]:
    """The class to register; it holds how DynamoDB is reached. Credentials are found where a task runs."""

    class DynamoDbSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def reader(self, schema: StructType) -> DataSourceReader:
            return DynamoDbReader(access, DeviceScan.from_options(self.options), schema)

    return DynamoDbSource


def scan_access(settings: Settings) -> DynamoDbAccess:
    return DynamoDbAccess.from_settings(settings, attempts=settings.sync_scan_attempts)


def read_dynamodb(spark: SparkSession, access: DynamoDbAccess, scan: DeviceScan) -> DataFrame:
    """Rows of SCHEMA, or of WHOLE_SCHEMA. Each use of the result scans the table, which costs money: use it once."""
    register_once(spark, dynamodb_source, access)
    return (
        spark.read.format(FORMAT).schema(SCHEMA if scan.sample_size else WHOLE_SCHEMA).options(**scan.options()).load()
    )


def _text_of(error: Exception) -> str:
    """What AWS said, with its code. Neither holds credentials."""
    text = f"DynamoDB: {' '.join(str(error).split())}"[:LONGEST_ERROR]
    may_not_describe = isinstance(error, ClientError) and error.operation_name == "DescribeTable"
    return (
        f"{text} (or set DYNAMODB_SCAN_UNITS, then nobody asks for the table's capacity)" if may_not_describe else text
    )
