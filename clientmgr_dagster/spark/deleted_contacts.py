"""Deleted contacts from BigQuery with Spark: page by page into `deleted_contacts`, each page one job."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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
from clientmgr.contact_deletions.bigquery import (
    BigQueryAccess,
    Position,
    page_parameters,
    page_query,
    stored_result,
)
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


@dataclass(frozen=True, slots=True)
class PageDone:
    """A page that lies in `deleted_contacts` now."""

    number: int
    rows: Mapping[CustomerId, int]
    """By customer: a chunk's total would say nothing about any of them."""
    last: Position | None

    @property
    def size(self) -> int:
        return sum(self.rows.values())


@dataclass(frozen=True)
class DeletedContactsFetch:
    """What some customers deleted since then, one page after the other.

    Killed after some pages it starts again from the watermarks: what is there already is not put in twice.
    """

    spark: SparkSession
    database: Database
    settings: Settings
    since: Mapping[CustomerId, datetime]
    run_id: str

    def pages(self) -> Iterator[PageDone]:
        """Fetch all of it; a page is done when it is given out."""
        # A row from the future would move the watermark past all that is deleted until then. It waits until it is due.
        until = datetime.now(UTC)
        page = PageDone(0, {}, None)
        while self.since:
            page = self._fetch(page.number + 1, until, page.last)
            yield page
            if page.size < self.settings.contact_deletion_page_size:
                return

    def _fetch(self, number: int, until: datetime, after: Position | None) -> PageDone:
        settings, access = self.settings, BigQueryAccess.from_settings(self.settings)
        table, size = settings.bigquery_deleted_contacts_table, settings.contact_deletion_page_size
        query = page_query(table, self.since, until=until, after=after, limit=size)
        with stored_result(access, query, page_parameters(after)) as stored:
            # Kept: it is written, and then asked where it ended.
            page = read_bigquery(self.spark, access, stored.path, SCHEMA, settings.spark_partitions).persist()
            try:
                write_results(
                    page.withColumn("found_at", F.lit(datetime.now(UTC))).withColumn(
                        "contact_hash", contact_hashes(settings)("customer_id", "contact_id")
                    ),
                    self.database.conninfo(Role.WRITER),
                    ResultWrite("deleted_contacts", self.run_id, STEP, tuple(self.since)),
                )
                ends = (
                    page.groupBy("customer_id")
                    .agg(F.count("*").alias("rows"), F.max(F.struct("deleted_at", "contact_id")).alias("last"))
                    .orderBy("customer_id")
                    .collect()
                )
            finally:
                page.unpersist()
        rows = {CustomerId(end.customer_id): end.rows for end in ends}
        if not ends:
            return PageDone(number, rows, None)
        end = ends[-1]
        # Spark gives times in the machine's zone and without saying so.
        last = Position(end.customer_id, end.last.deleted_at.astimezone(UTC), end.last.contact_id)
        return PageDone(number, rows, last)
