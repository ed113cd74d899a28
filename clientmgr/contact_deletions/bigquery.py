"""BigQuery as we use it: the queries for deleted contacts (a page, or all there are), and tables of what they find.

Whoever asks BigQuery hands in a client: Dagster's comes from its own resource (`clientmgr_dagster/resources.py`).

Contact ids are parameters and never in a query's text: errors quote the text, and are kept in Dagster's event log.
"""

import contextlib
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import SettingsError
from clientmgr.base.settings import Settings

if TYPE_CHECKING:
    from google.cloud import bigquery, bigquery_storage

# A server that is down makes Google's client try for ever.
DEADLINE_S = 300.0
# In case we are killed before we have removed it.
EXPIRES = "OPTIONS (expiration_timestamp = TIMESTAMP_ADD(CURRENT_TIMESTAMP(), INTERVAL 6 HOUR))"
_TABLE = re.compile(r"^[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]+$")
# Before any deletion there can be.
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def checked_project(project: str | None) -> str:
    if not project:
        raise SettingsError("BIGQUERY_PROJECT: expected the project of the deleted contacts, got nothing")
    return project


def stand_in_client(project: str, endpoint: str) -> "bigquery.Client":
    """A client of a stand-in, which needs no credentials."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import bigquery

    return bigquery.Client(
        project=project, credentials=AnonymousCredentials(), client_options={"api_endpoint": endpoint}
    )


@dataclass(frozen=True)
class StorageAccess:
    """How stored results are read, by tasks elsewhere too. They can run no query with it, and it holds no secret."""

    project: str
    endpoint: str = ""
    """host:port of a stand-in, which needs no credentials."""

    @classmethod
    def from_settings(cls, settings: Settings) -> "StorageAccess":
        return cls(checked_project(settings.bigquery_project), settings.bigquery_storage_endpoint)

    def client(self) -> "bigquery_storage.BigQueryReadClient":
        from google.cloud import bigquery_storage

        if not self.endpoint:
            return bigquery_storage.BigQueryReadClient()
        import grpc
        from google.cloud.bigquery_storage_v1.services.big_query_read.transports import BigQueryReadGrpcTransport

        channel = grpc.insecure_channel(self.endpoint, options=[("grpc.max_receive_message_length", -1)])
        return bigquery_storage.BigQueryReadClient(transport=BigQueryReadGrpcTransport(channel=channel))


@dataclass(frozen=True, slots=True)
class StoredResult:
    """What a query found, in a table that Storage Read can read."""

    path: str
    """projects/…/datasets/…/tables/…"""
    rows: int


@dataclass(frozen=True, slots=True)
class Position:
    """The last row of a page; the next page begins after it."""

    customer_id: int
    deleted_at: datetime
    contact_id: int


def bounds(watermarks: Mapping[CustomerId, datetime | None], overlap: timedelta) -> dict[CustomerId, datetime]:
    """From where each customer is read: somewhat before its watermark, because rows may arrive late."""
    return {customer: BEGINNING if moment is None else moment - overlap for customer, moment in watermarks.items()}


@contextlib.contextmanager
def stored_result(
    client: "bigquery.Client",
    query: str,
    parameters: "Sequence[bigquery.ScalarQueryParameter]" = (),
    *,
    scratch_dataset: str = "",
) -> Iterator[StoredResult]:
    """Run a query and have BigQuery store what it finds in a table, until the end of the `with`.

    The table is in `scratch_dataset`, or, without one, where BigQuery itself keeps the results of queries. Storage Read
    only reads tables. It reads a million rows in the time the REST interface takes for some thousands.
    """
    from google.cloud.bigquery import QueryJobConfig, TableReference
    from google.cloud.bigquery.retry import DEFAULT_RETRY

    patience = DEFAULT_RETRY.with_timeout(DEADLINE_S)
    aside = f"{client.project}.{scratch_dataset}.clientmgr_page_{uuid.uuid4().hex}"
    if scratch_dataset:
        query = f"CREATE TABLE `{aside}` {EXPIRES} AS {query}"
    config = QueryJobConfig(query_parameters=list(parameters))
    try:
        job = client.query(query, job_config=config, timeout=DEADLINE_S, retry=patience, job_retry=None)
        job.result(timeout=DEADLINE_S, max_results=1, retry=patience)
        found = TableReference.from_string(aside) if scratch_dataset else job.destination
        rows = client.get_table(found, timeout=DEADLINE_S, retry=patience).num_rows
        yield StoredResult(f"projects/{found.project}/datasets/{found.dataset_id}/tables/{found.table_id}", rows)
    finally:
        if scratch_dataset:
            client.delete_table(aside, not_found_ok=True, timeout=DEADLINE_S, retry=patience)


def page_query(
    table: str, since: Mapping[CustomerId, datetime], *, until: datetime, after: Position | None, limit: int
) -> str:
    """The next page. Run it with `page_parameters(after)`.

    BigQuery prunes partitions and clusters by constants alone, so each customer's own bound, which comes from a join,
    stands beside constant ones for all of them.
    """
    wanted = " UNION ALL ".join(
        f"SELECT {customer:d} AS customer_id, {_timestamp(moment)} AS since" for customer, moment in since.items()
    )
    rest = "" if after is None else f"AND {_AFTER}"
    return f"""
SELECT DISTINCT d.customer_id, d.contact_id, d.deleted_at
FROM `{_checked(table)}` AS d JOIN ({wanted}) AS wanted ON wanted.customer_id = d.customer_id
WHERE d.deleted_at >= {_timestamp(min(since.values()))} AND {_of(since)}
    AND d.deleted_at > wanted.since AND d.deleted_at <= {_timestamp(until)} AND d.contact_id > 0 {rest}
ORDER BY customer_id, deleted_at, contact_id
LIMIT {limit:d}"""


# In the order of the page.
_AFTER = """(
    d.customer_id > @after_customer
    OR (d.customer_id = @after_customer AND (
        d.deleted_at > @after_moment OR (d.deleted_at = @after_moment AND d.contact_id > @after_contact)
    ))
)"""


def page_parameters(after: Position | None) -> "list[bigquery.ScalarQueryParameter]":
    """Where the last page ended, for `page_query`."""
    from google.cloud.bigquery import ScalarQueryParameter

    if after is None:
        return []
    return [
        ScalarQueryParameter("after_customer", "INT64", after.customer_id),
        ScalarQueryParameter("after_moment", "TIMESTAMP", after.deleted_at),
        ScalarQueryParameter("after_contact", "INT64", after.contact_id),
    ]


def everything_query(table: str, customers: Iterable[CustomerId], *, until: datetime) -> str:
    """All that these customers ever deleted, however old it is and however late it came."""
    return f"""
SELECT DISTINCT d.customer_id, d.contact_id, d.deleted_at
FROM `{_checked(table)}` AS d
WHERE {_of(customers)} AND d.deleted_at <= {_timestamp(until)} AND d.contact_id > 0"""


def _of(customers: Iterable[CustomerId]) -> str:
    return f"d.customer_id IN ({', '.join(f'{customer:d}' for customer in customers)})"


def _checked(table: str) -> str:
    if _TABLE.fullmatch(table) is None:
        raise SettingsError(f"BIGQUERY_DELETED_CONTACTS_TABLE: expected dataset.table, got {table!r}")
    return table


def _timestamp(moment: datetime) -> str:
    return f"TIMESTAMP '{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}+00:00'"
