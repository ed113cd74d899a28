"""A page of stored messages, and what becomes of each: what `rule` decides, as new contents of its row."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

import msgspec
import psycopg
from psycopg import Connection
from psycopg.rows import tuple_row

from clientmgr.base.customer_ids import CustomerId
from clientmgr.broker.erased import erased_attributes, erased_data, is_erased
from clientmgr.erasure.deletions import Lookup
from clientmgr.erasure.recognition import Mentions, as_customer, customers_in
from clientmgr.erasure.rule import Erase, Rewrite, Stored, own_customer, verdict_on

ROWS_A_PAGE: Final = 500
BYTES_A_PAGE: Final = 8_000_000
ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Row:
    """A row and its key in its table."""

    key: int
    stored: Stored

    @classmethod
    def read(cls, row: tuple[Any, ...]) -> Self:
        key, payload, host_id, user_id, attributes, published_at = row
        return cls(key, Stored(payload, host_id, user_id, attributes, int(published_at.timestamp() * 1000)))


@dataclass(frozen=True, slots=True)
class Change:
    """What a row is to hold."""

    key: int
    payload: bytes
    host_id: str
    user_id: str
    attributes: Mapping[str, str]
    erased: bool


Swept = tuple[str, int, Sequence[Change]]
"""What became of a page: its topic or table, how many messages it had, and what was changed."""


@dataclass(frozen=True)
class Sieve:
    """Decides for one sweep."""

    lookup: Lookup
    at: datetime

    def sift(
        self, connection: Connection[Any], rows: Sequence[Row]
    ) -> tuple[list[Change], list[tuple[CustomerId, int]]]:
        """What is to be changed, and the messages that name another customer than their label."""
        strays: list[tuple[CustomerId, int]] = []
        looked_at: list[tuple[Row, Mentions]] = []
        interesting = self.lookup.standing.interesting
        for row in rows:
            stored = row.stored
            if is_erased(stored.attributes, stored.payload):
                continue
            named = customers_in(stored.payload, stored.host_id)
            labelled = as_customer(stored.host_id)
            if labelled is not None:
                strays += [(customer, row.key) for customer in named if customer != labelled]
            # Nearly all: of customers that have deleted nothing, or nothing yet.
            if not named.isdisjoint(interesting):
                looked_at.append((row, stored.mentions()))
        known = self.lookup.known(connection, [found for _, found in looked_at])
        changes = []
        for row, found in looked_at:
            decision = verdict_on(row.stored, found, known)
            if isinstance(decision, Erase):
                changes.append(self._erased(connection, row, found))
            elif isinstance(decision, Rewrite):
                changes.append(
                    Change(
                        row.key,
                        decision.payload,
                        row.stored.host_id,
                        decision.user_id,
                        decision.attributes,
                        erased=False,
                    )
                )
        return changes, strays

    def _erased(self, connection: Connection[Any], row: Row, found: Mentions) -> Change:
        return Change(
            row.key,
            erased_data(own_customer(found)),
            _label_left(connection, row.stored.host_id, found),
            "",
            erased_attributes(self.at),
            erased=True,
        )


def _label_left(connection: Connection[Any], host_id: str, found: Mentions) -> str:
    """The label, if it is a customer's. Clients of the gateway choose it: it may be a person's address as well."""
    customer = as_customer(host_id)
    if customer is None:
        return ""
    if customer in found.customers:
        return host_id
    with connection.cursor(row_factory=tuple_row) as cursor:
        found_one = cursor.execute("SELECT FROM clientmgr.tenants WHERE customer_id = %s", (customer,)).fetchone()
    return host_id if found_one is not None else ""


def columns(changes: Sequence[Change]) -> dict[str, list[Any]]:
    """The changes as parameters of the statement that makes them."""
    return {
        "keys": [change.key for change in changes],
        "payloads": [change.payload for change in changes],
        "host_ids": [change.host_id for change in changes],
        "user_ids": [change.user_id for change in changes],
        "attributes": [msgspec.json.encode(change.attributes).decode() for change in changes],
    }


def fetch(connection: Connection[Any], query: str, **parameters: Any) -> list[tuple[Any, ...]]:
    """The rows that a statement of ours gives, if it gives any."""
    with connection.cursor(binary=True, row_factory=tuple_row) as cursor:
        cursor.execute(query.encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []


def patiently(change: Callable[[], object]) -> None:
    """A row that we change may be in somebody's hands for a moment."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            change()
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            if attempt == ATTEMPTS:
                raise
        else:
            return
