"""Spark's data source for a BigQuery table: a task for each stream of a Storage Read session, Arrow all the way."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from clientmgr.contact_deletions.bigquery import DEADLINE_S, StorageAccess
from clientmgr_dagster.spark.registration import register_once

FORMAT = "clientmgr_bigquery"


@dataclass
class Stream(InputPartition):
    """One stream of the session; an empty name: the table has no rows."""

    name: str


class BigQueryReader(DataSourceReader):
    """Opens the session on the driver and reads one of its streams in each task."""

    def __init__(self, access: StorageAccess, table: str, partitions: int, schema: StructType) -> None:
        self._access = access
        self._table = table
        self._partitions = partitions
        self._schema = schema

    def partitions(self) -> Sequence[Stream]:
        from google.cloud.bigquery_storage import types

        session = types.ReadSession(
            table=self._table,
            data_format=types.DataFormat.ARROW,
            read_options=types.ReadSession.TableReadOptions(selected_fields=self._schema.fieldNames()),
        )
        created = self._access.client().create_read_session(
            parent=f"projects/{self._access.project}",
            read_session=session,
            max_stream_count=self._partitions,
            timeout=DEADLINE_S,
        )
        return [Stream(stream.name) for stream in created.streams] or [Stream("")]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        name = cast(Stream, partition).name
        if not name:
            return
        arrow_schema = to_arrow_schema(self._schema, timezone="UTC")
        rows = self._access.client().read_rows(name, timeout=DEADLINE_S).rows()
        for page in rows.pages:
            yield page.to_arrow().select(arrow_schema.names).cast(arrow_schema)


def bigquery_source(access: StorageAccess) -> type[DataSource]:
    """The class to register; it holds how BigQuery is reached, as `tenant_source`'s does for PostgreSQL."""

    class BigQuerySource(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def reader(self, schema: StructType) -> DataSourceReader:
            return BigQueryReader(access, self.options["table"], int(self.options["partitions"]), schema)

    return BigQuerySource


def read_bigquery(spark: SparkSession, access: StorageAccess, table: str, schema: str, partitions: int) -> DataFrame:
    """A table (projects/…/datasets/…/tables/…); only the columns that the schema names are fetched."""
    register_once(spark, bigquery_source, access)
    reader = spark.read.format(FORMAT).schema(schema)
    return reader.options(table=table, partitions=str(partitions)).load()
