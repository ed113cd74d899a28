"""The sweep over the log: new messages against all deletions, older ones against the deletions since the last sweep."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.sqlfiles import named_queries
from clientmgr.erasure.pages import BYTES_A_PAGE, ROWS_A_PAGE, Change, Row, Sieve, Swept, columns, fetch, patiently

QUERIES = named_queries("erasure/queries/log_messages.sql")

OFFSETS_A_LOOK: Final = 20_000
"""Older messages are looked for by their label. One statement passes so many at most."""


def sweep(connection: Connection[Any], sieve: Sieve, changed: frozenset[CustomerId]) -> Iterator[Swept]:
    """`changed`: customers with deletions since the last sweep."""
    for topic_id, topic, last_offset, swept_to in fetch(connection, QUERIES["topics"]):
        one = _Topic(connection, sieve, topic_id, topic)
        if swept_to and changed:
            yield from one.labelled(sorted(map(str, changed)), swept_to)
            yield from one.strays(sorted(changed))
        yield from one.new(swept_to, last_offset)
    fetch(connection, QUERIES["forget_strays"])


@dataclass(frozen=True, slots=True)
class _Topic:
    connection: Connection[Any]
    sieve: Sieve
    topic_id: int
    topic: str

    def new(self, swept_to: int, last_offset: int) -> Iterator[Swept]:
        """Messages that no sweep has seen."""
        while rows := self._page(swept_to, last_offset, None):
            swept_to = rows[-1].key
            yield self._change(rows, swept_to=swept_to)

    def labelled(self, hosts: Sequence[str], swept_to: int) -> Iterator[Swept]:
        """Messages that earlier sweeps have seen, with one of these labels, or with one that is no customer's."""
        ((first,),) = self._fetch("first_offset")
        after = swept_to if first is None else first - 1
        while after < swept_to:
            through = min(swept_to, after + OFFSETS_A_LOOK)
            rows = self._page(after, through, hosts)
            after = rows[-1].key if rows else through
            yield self._change(rows)

    def strays(self, customers: Sequence[CustomerId]) -> Iterator[Swept]:
        """And those that name these customers under another customer's label."""
        after = 0
        while found := self._fetch("strays", customers=list(customers), after_offset=after, limit=ROWS_A_PAGE):
            rows = [Row.read(row) for row in found]
            after = rows[-1].key
            yield self._change(rows)

    def _page(self, after: int, through: int, hosts: Sequence[str] | None) -> list[Row]:
        found = self._fetch(
            "page",
            after_offset=after,
            last_offset=through,
            hosts=None if hosts is None else list(hosts),
            limit=ROWS_A_PAGE,
            max_bytes=BYTES_A_PAGE,
        )
        return [Row.read(row) for row in found]

    def _change(self, rows: Sequence[Row], *, swept_to: int | None = None) -> Swept:
        changes, strays = self.sieve.sift(self.connection, rows)
        if changes or swept_to is not None:
            patiently(lambda: self._write(changes, [] if swept_to is None else strays, swept_to))
        return self.topic, len(rows), changes

    def _write(self, changes: Sequence[Change], strays: Sequence[tuple[CustomerId, int]], swept_to: int | None) -> None:
        with self.connection.transaction():
            if changes:
                self._fetch("change", **columns(changes))
                self._drop_ordering_keys([change.key for change in changes if change.erased])
            if strays:
                customers, offsets = zip(*strays, strict=True)
                self._fetch("note_strays", customers=list(customers), offsets=list(offsets))
            if swept_to is not None:
                self._fetch("note_progress", swept_to=swept_to)

    def _drop_ordering_keys(self, offsets: Sequence[int]) -> None:
        """Clients of the gateway choose their ordering keys, and may choose a person's."""
        for name, held in self._fetch("deliveries_by_key", offsets=list(offsets)):
            ((subscription_id,),) = self._fetch("lock_subscription", name=name)
            ((keys,),) = self._fetch("drop_ordering_keys", id=subscription_id, offsets=held)
            self._fetch("promote", id=subscription_id, keys=keys or [])

    def _fetch(self, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return fetch(self.connection, QUERIES[query], topic_id=self.topic_id, **parameters)
