"""Deleted contacts from BigQuery, page by page: ask for one, have it stored, begin the next where it ended."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.settings import Settings
from clientmgr.contact_deletions.bigquery import Position, StoredResult, page_parameters, page_query, stored_result

if TYPE_CHECKING:
    from google.cloud import bigquery


@dataclass(frozen=True, slots=True)
class CustomersRows:
    """What a page has of one customer, and the last of it."""

    customer_id: CustomerId
    rows: int
    deleted_at: datetime
    contact_id: int


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


def fetch_pages(
    client: "bigquery.Client",
    settings: Settings,
    since: Mapping[CustomerId, datetime],
    store: Callable[[StoredResult], Sequence[CustomersRows]],
) -> Iterator[PageDone]:
    """What the customers deleted since then. A page is done when it is given out.

    `store` puts a page in `deleted_contacts` and says what it had. Killed after some pages, the next fetch starts again
    from the watermarks: what is there already is not put in twice.
    """
    # A row from the future would move the watermark past all that is deleted until then. It waits until it is due.
    until = datetime.now(UTC)
    table, size = settings.bigquery_deleted_contacts_table, settings.contact_deletion_page_size
    page = PageDone(0, {}, None)
    while since:
        query = page_query(table, since, until=until, after=page.last, limit=size)
        parameters = page_parameters(page.last)
        with stored_result(client, query, parameters, scratch_dataset=settings.bigquery_scratch_dataset) as stored:
            page = _page_done(page.number + 1, store(stored))
        yield page
        if page.size < size:
            return


def _page_done(number: int, found: Sequence[CustomersRows]) -> PageDone:
    rows = {one.customer_id: one.rows for one in found}
    if not found:
        return PageDone(number, rows, None)
    end = max(found, key=lambda one: one.customer_id)
    return PageDone(number, rows, Position(end.customer_id, end.deleted_at, end.contact_id))
