"""Spark's writer of result tables in PostgreSQL: Arrow over COPY, safe when tasks are tried again or run twice.

A task's attempt copies its rows into the table's `…_staged` sibling under a name of its own and tells Spark that name.
Rows count only when the driver has been told of all tasks: it then moves those of the named attempts, and of no others,
in one transaction. What an attempt left that nobody names is removed by a later write. Where several runs write to one
table at once, one moves at a time: tenants that they share have the results of the last, and never some of each.
"""

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from adbc_driver_postgresql import dbapi
from psycopg import Connection
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from clientmgr.base.connection_rights import connect_checked
from clientmgr.base.errors import InvalidInputError, TransientError
from clientmgr.base.sqlfiles import named_queries, result_tables
from clientmgr.operations.batch_failures import record_failures
from clientmgr_dagster.spark.adbc import arrow_connection
from clientmgr_dagster.spark.device_columns import CUSTOMER, ERROR
from clientmgr_dagster.spark.registration import register_once

FORMAT = "clientmgr_results"
CONTROL_SCHEMA = "clientmgr"

# Not a lock on each tenant: two runs replace rows that the other can't see yet, and wait for each other's keys in any
# order. And not on the table: who deletes what a search found need not wait for another search.
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtext('results of Spark'), hashtext(%s))"


@dataclass(frozen=True)
class ResultWrite:
    """Where rows go, and for whom. What these customers had there is replaced, unless the target adds to it."""

    target: str
    run_id: str
    step: str
    customers: tuple[int, ...]
    recorded: Mapping[str, Any] = field(default_factory=dict)
    """What the target's `record` query notes of the work besides, in the same transaction."""

    def __post_init__(self) -> None:
        if self.target not in result_tables():
            raise InvalidInputError("target", f"one of {', '.join(result_tables())}", self.target)

    def options(self) -> dict[str, str]:
        return {
            "target": self.target,
            "run_id": self.run_id,
            "step": self.step,
            "customers": ",".join(map(str, self.customers)),
            "recorded": json.dumps(dict(self.recorded), default=str),
        }

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "ResultWrite":
        customers = tuple(int(one) for one in options["customers"].split(",") if one)
        recorded = json.loads(options["recorded"])
        return cls(options["target"], options["run_id"], options["step"], customers, recorded)


@dataclass
class Attempt(WriterCommitMessage):
    """What one attempt at a task staged, and the tenants that it was told could not be read."""

    attempt_id: str
    rows: int
    failures: dict[int, str] = field(default_factory=dict)


class LostRowsError(TransientError):
    """Staged rows are gone: the server crashed in between. The work is to be done again."""


class ResultsWriter(DataSourceArrowWriter):
    """Stages in tasks, moves on the driver."""

    def __init__(self, conninfo: str, write: ResultWrite) -> None:
        self._conninfo = conninfo
        self._write = write

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Attempt:
        attempt = Attempt(uuid.uuid4().hex, 0)
        with arrow_connection(self._conninfo) as connection:
            for batch in iterator:
                rows = _without_failures(batch, attempt.failures)
                if rows.num_rows:
                    self._stage(connection, attempt, rows)
            connection.commit()
        return attempt

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        attempts = [message for message in messages if isinstance(message, Attempt)]
        failures = {customer: error for attempt in attempts for customer, error in attempt.failures.items()}
        with connect_checked(self._conninfo) as connection:
            _move(connection, self._write, attempts, failures)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        attempts = [message.attempt_id for message in messages if isinstance(message, Attempt)]
        with connect_checked(self._conninfo) as connection:
            connection.execute(_ONE_AT_A_TIME, (self._write.target,))
            connection.execute(_queries(self._write)["forget"], {"attempts": attempts})

    def _stage(self, connection: dbapi.Connection, attempt: Attempt, rows: pa.RecordBatch) -> None:
        named = rows.append_column("attempt_id", pa.repeat(attempt.attempt_id, rows.num_rows))
        with connection.cursor() as cursor:
            cursor.adbc_ingest(f"{self._write.target}_staged", named, mode="append", db_schema_name=CONTROL_SCHEMA)
        attempt.rows += rows.num_rows


def results_writer(conninfo: str) -> type[DataSource]:
    """The class to register; it holds the connection string, as `tenant_source`'s does."""

    class ResultsSink(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            return ResultsWriter(conninfo, ResultWrite.from_options(self.options))

    return ResultsSink


def write_results(rows: DataFrame, conninfo: str, write: ResultWrite) -> None:
    """Write all of it or nothing. Rows with an `error` are tenants that failed: their earlier results stay."""
    register_once(rows.sparkSession, results_writer, conninfo)
    rows.write.format(FORMAT).options(**write.options()).mode("append").save()


def _without_failures(batch: pa.RecordBatch, failures: dict[int, str]) -> pa.RecordBatch:
    """The rows that are results, without the column that tells them from failures, which are put aside."""
    position = batch.schema.get_field_index(ERROR)
    if position < 0:
        return batch
    errors = batch.column(position)
    if errors.null_count < len(errors):
        failed = batch.filter(pc.is_valid(errors))
        failures.update(zip(failed.column(CUSTOMER).to_pylist(), failed.column(ERROR).to_pylist(), strict=True))
        batch = batch.filter(pc.is_null(errors))
    return batch.drop_columns([ERROR])


def _move(connection: Connection[Any], write: ResultWrite, attempts: list[Attempt], failures: dict[int, str]) -> None:
    queries = _queries(write)
    connection.execute(_ONE_AT_A_TIME, (write.target,))
    named = {"attempts": [attempt.attempt_id for attempt in attempts]}
    (staged,) = connection.execute(queries["staged"], named).fetchone() or (0,)
    expected = sum(attempt.rows for attempt in attempts)
    if staged != expected:
        raise LostRowsError(f"{write.target}: {expected} rows were staged, {staged} are left")
    scope = {"customers": sorted(set(write.customers) - failures.keys())}
    if "clear" in queries:
        connection.execute(queries["clear"], scope)
    connection.execute(queries["move"], named | scope)
    if "record" in queries:
        connection.execute(queries["record"], {**write.recorded, "run_id": write.run_id} | scope)
    connection.execute(queries["forget"], named)
    record_failures(connection, write.run_id, write.step, failures)


def _queries(write: ResultWrite) -> Mapping[str, str]:
    """`sql/<package>/results/<target>.sql`: staged, clear (where it replaces), move, record (if any), forget."""
    return named_queries(result_tables()[write.target])
