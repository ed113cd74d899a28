"""Messages outside of the log: what waits, what is held, and dead letters. They are few: each sweep reads them all."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection

from clientmgr.base.sqlfiles import named_queries
from clientmgr.erasure.pages import BYTES_A_PAGE, ROWS_A_PAGE, Change, Row, Sieve, Swept, columns, fetch, patiently

QUERIES = named_queries("erasure/queries/waiting_messages.sql")


@dataclass(frozen=True, slots=True)
class Place:
    """A table of messages."""

    table: str
    published_at: str
    why: str
    """The column that says why the message is there. It may quote the message."""


PLACES: Final = (
    Place("delayed_message_t", "original_published_at", "reason"),
    Place("held_message_t", "original_published_at", "reason"),
    Place("pubsub_delayed", "published_at", "reason"),
    Place("dead_letter_queue", "published_at", "exception"),
)


def sweep(connection: Connection[Any], sieve: Sieve) -> Iterator[Swept]:
    for place in PLACES:
        after = 0
        while rows := _page(connection, place, after):
            after = rows[-1].key
            changes, _ = sieve.sift(connection, rows)
            if changes:
                _write(connection, place, changes)
            yield place.table, len(rows), changes


def _page(connection: Connection[Any], place: Place, after: int) -> list[Row]:
    found = fetch(connection, _filled("page", place), after=after, limit=ROWS_A_PAGE, max_bytes=BYTES_A_PAGE)
    return [Row.read(row) for row in found]


def _write(connection: Connection[Any], place: Place, changes: Sequence[Change]) -> None:
    patiently(lambda: fetch(connection, _filled("change", place), **columns(changes)))


def _filled(query: str, place: Place) -> str:
    return (
        QUERIES[query]
        .replace(':"table"', f"clientmgr.{place.table}")
        .replace(':"published_at"', place.published_at)
        .replace(':"why"', place.why)
    )
