"""Spark's data source for tenants: Arrow batches over COPY, small tenants and slices of large ones packed into tasks.

The work is sent to the data: filters, columns and whole queries run inside PostgreSQL, and only what they leave
travels. Where PostgreSQL is and who we are there is in the class that is registered, pickled with it; an option of the
source would be shown in plans, logs and Spark's UI.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, cast

import adbc_driver_manager
import msgspec
import psycopg
import pyarrow as pa
from adbc_driver_postgresql import dbapi
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition, IsNotNull
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from clientmgr.base.connection_rights import connect_checked
from clientmgr.base.customer_ids import CustomerId, in_schema, parse_customer_id, quoted_schema
from clientmgr.base.errors import TransientError
from clientmgr.devices.queries import device_queries
from clientmgr_dagster.spark import device_columns
from clientmgr_dagster.spark.adbc import arrow_connection, still_answers
from clientmgr_dagster.spark.nodes import conninfo_of, named_on, sizes_on_nodes, tell_unreachable
from clientmgr_dagster.spark.packing import Slice, TableSize, plan
from clientmgr_dagster.spark.registration import register_once
from clientmgr_dagster.spark.snapshots import WHOLE_TABLES, Snapshot, begin_at

FORMAT = "clientmgr_tenants"
LONGEST_ERROR = 500
IN_PAGES, IN_CONTACTS = "%(in_pages)s", "%(in_contacts)s"

_SIZES = """
SELECT wanted.customer_id, coalesce(c.relpages, 0)
FROM unnest(%s::bigint []) AS wanted (customer_id)
LEFT JOIN pg_namespace AS n ON n.nspname = clientmgr.tenant_schema(wanted.customer_id)
LEFT JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = 'devices'
ORDER BY wanted.customer_id
"""


@dataclass(frozen=True)
class Request:
    """What is read of which tenants. Nothing in it is secret: it travels as options."""

    customers: tuple[CustomerId, ...]
    partitions: int
    query: str = ""
    """A query of `sql/tenant/queries/batch.sql`; empty: rows of `devices`."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    snapshot: Snapshot = WHOLE_TABLES
    """Where one is held (`shared_snapshot`), large tables are cut: rows and queries alike come slice by slice."""
    failures_as_rows: bool = False
    """A tenant that can't be read is a row with its `error`, and the others go on; otherwise the read fails."""

    def options(self) -> dict[str, str]:
        return {
            "customers": ",".join(map(str, self.customers)),
            "partitions": str(self.partitions),
            "query": self.query,
            "parameters": json.dumps(dict(self.parameters), default=str),
            "snapshot": msgspec.json.encode(self.snapshot).decode(),
            "failures": "rows" if self.failures_as_rows else "fail",
        }

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "Request":
        return cls(
            customers=tuple(parse_customer_id(one) for one in options["customers"].split(",") if one),
            partitions=int(options["partitions"]),
            query=options["query"],
            parameters=json.loads(options["parameters"]),
            snapshot=msgspec.json.decode(options["snapshot"], type=Snapshot),
            failures_as_rows=options["failures"] == "rows",
        )


@dataclass
class Pack(InputPartition):
    """What one task reads."""

    slices: list[Slice]


class TenantReader(DataSourceReader):
    """Plans the packs on the driver and reads one of them in each task."""

    def __init__(self, conninfo: str, request: Request, schema: StructType) -> None:
        self._conninfo = conninfo
        self._request = request
        self._schema = schema
        self._conditions: list[str] = []
        self._customers = set(request.customers)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # Spark's name
        for condition in filters:
            if condition == IsNotNull((device_columns.CUSTOMER,)):
                continue  # every row has one
            customers = device_columns.customers_of(condition)
            text = None if self._request.query else device_columns.to_sql(condition)
            if customers is not None:
                self._customers &= customers
            elif text is not None:
                self._conditions.append(text)
            else:
                yield condition

    def partitions(self) -> Sequence[Pack]:
        snapshot = self._request.snapshot
        with connect_checked(self._conninfo) as connection:
            rows = connection.execute(_SIZES, (sorted(self._customers),)).fetchall()
            tables = [TableSize(CustomerId(customer), pages) for customer, pages in rows]
            if snapshot.nodes:
                tables = sizes_on_nodes(connection, self._conninfo, snapshot.nodes, tables)
        large = snapshot.tables if _adds_up(self._request.query) else ()
        packs = plan(tables, large, self._request.partitions, pages_a_slice=snapshot.pages_a_slice)
        # Spark wants at least one partition, also where there is no tenant.
        return [Pack(slices) for slices in packs] or [Pack([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        slices = cast(Pack, partition).slices
        arrow_schema = to_arrow_schema(self._schema, timezone="UTC")
        with ExitStack() as opened:
            connection = self._connected(opened, slices)
            for one in slices:
                try:
                    for batch in self._batches(connection, one):
                        yield batch.cast(arrow_schema)
                except (adbc_driver_manager.Error, psycopg.Error) as error:
                    # A server that is gone fails the task, which Spark then tries again.
                    if not self._request.failures_as_rows or not still_answers(connection):
                        raise
                    yield _error_row(arrow_schema, one.customer_id, error)

    def _connected(self, opened: ExitStack, slices: Sequence[Slice]) -> dbapi.Connection:
        """To the node that the pack is of, or to the coordinator where we, unlike the driver, can't reach the node."""
        if slices and (node := slices[0].place.node):
            try:
                return opened.enter_context(arrow_connection(conninfo_of(self._conninfo, node)))
            except adbc_driver_manager.Error as error:
                if not all(one.is_whole for one in slices):
                    # Slices are of the node's own moment, which nobody else knows.
                    raise TransientError(
                        f"a task can't reach {node}; if none can, set SPARK_READS_NODES=false"
                    ) from error
                tell_unreachable(node, error)
        return opened.enter_context(arrow_connection(self._conninfo))

    def _batches(self, connection: dbapi.Connection, one: Slice) -> Iterator[pa.RecordBatch]:
        if not one.is_whole:
            begin_at(connection, self._request.snapshot.id, one)
        with connection.cursor() as cursor:
            cursor.execute(self._sql(one))
            yield from cursor.fetch_record_batch()
        connection.rollback()

    def _sql(self, one: Slice) -> str:
        names = self._schema.fieldNames()
        if self._request.query:
            return _query(self._request, one, names)
        where = " AND ".join([*self._conditions, _in_pages(one)])
        columns = device_columns.select_list(names, one.customer_id)
        text = f"SELECT {columns} FROM {quoted_schema(one.customer_id)}.devices AS d WHERE {where}"
        return named_on(text, one.customer_id, one.place)


def tenant_source(conninfo: str) -> type[DataSource]:
    """The class to register. Made here and not importable, so that it is pickled with what it holds."""

    class TenantSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def reader(self, schema: StructType) -> DataSourceReader:
            return TenantReader(conninfo, Request.from_options(self.options), schema)

    return TenantSource


def read_tenants(spark: SparkSession, conninfo: str, request: Request, schema: str) -> DataFrame:
    """The tenants' rows with `customer_id` before them. `schema` names the columns, and only those are fetched."""
    register_once(spark, tenant_source, conninfo)
    return spark.read.format(FORMAT).schema(schema).options(**request.options()).load()


def _adds_up(query: str) -> bool:
    """Whether it can be asked slice by slice: rows can, and queries that say which part of a table they are about."""
    return not query or any(part in device_queries("batch")[query] for part in (IN_PAGES, IN_CONTACTS))


def _query(request: Request, one: Slice, names: Sequence[str]) -> str:
    customer_id = one.customer_id
    text = in_schema(device_queries("batch")[request.query], customer_id).rstrip(";")
    text = text.replace(IN_PAGES, _in_pages(one)).replace(IN_CONTACTS, _in_contacts(one))
    for name, value in {**request.parameters, "customer_id": customer_id}.items():
        text = text.replace(f"%({name})s", sql.Literal(value).as_string())
    columns = ", ".join(
        device_columns.select_list([name], customer_id)
        if name in (device_columns.CUSTOMER, device_columns.ERROR)
        else f"q.{name}"
        for name in names
    )
    return named_on(f"SELECT {columns} FROM ({text}) AS q", customer_id, one.place)


def _in_pages(one: Slice) -> str:
    if one.is_whole:
        return "true"
    first = f"ctid >= '({one.first_page:d},0)'::tid"
    return first if one.end_page is None else f"{first} AND ctid < '({one.end_page:d},0)'::tid"


def _in_contacts(one: Slice) -> str:
    first = "true" if one.first_contact is None else f"contact_id >= {one.first_contact:d}"
    return first if one.end_contact is None else f"{first} AND contact_id < {one.end_contact:d}"


def _error_row(schema: pa.Schema, customer_id: CustomerId, error: Exception) -> pa.RecordBatch:
    text = " ".join(str(error).split())[:LONGEST_ERROR] or type(error).__name__
    values = {device_columns.CUSTOMER: customer_id, device_columns.ERROR: text}
    return pa.RecordBatch.from_pylist([{name: values.get(name) for name in schema.names}], schema=schema)
