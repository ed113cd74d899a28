"""Finds a contact, a device or a token in all tenants. A statement names one tenant; a few connections ask in parallel.

The work is bounded: it stops at so many hits or after so many seconds, and says from which tenant to go on.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

import psycopg
from msgspec import Struct
from psycopg import Connection

from clientmgr.base.customer_ids import CustomerId, in_schema
from clientmgr.base.database import Database, Role
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.base.sqlfiles import named_queries
from clientmgr.contracts.push_tokens import token_digest
from clientmgr.devices.explanation import time_of
from clientmgr.devices.queries import device_queries

_QUERIES = named_queries("tenants/queries/search.sql")

MOST_HITS: Final = 50
WITHIN_S: Final = 3.0
CONNECTIONS: Final = 3
"""Of their own, closed at the end: a backend that has touched thousands of schemas stays large."""
ANSWER_WITHIN_MS: Final = 1000

Kind = Literal["contact", "deleted contact", "device", "deleted device", "token"]


class Hit(Struct, frozen=True, rename="camel"):
    """Something that the text may mean. A token itself is never in it."""

    kind: Kind
    customer_id: int
    application_code: str | None
    client_id: str | None
    contact_id: int | None
    devices: int | None = None
    """Of a contact, at most 1,000 are counted."""
    deleted_at: datetime | None = None


@dataclass(slots=True)
class Found:
    hits: list[Hit] = field(default_factory=list)
    searched: int = 0
    left: int = 0
    """Tenants that were not asked: there were enough hits, or the time was over."""
    go_on_after: int | None = None
    unreadable: list[int] = field(default_factory=list)
    """Tenants that could not be asked: behind on migrations, for one."""


def search_tenants(
    database: Database, hashes: KeyedHashes, text: str, *, after: int = 0, within_s: float = WITHIN_S
) -> Found:
    """In the order of the tenants' ids, from the first one behind `after`."""
    with database.connect(Role.READER, autocommit=True) as connection:
        wanted = [CustomerId(row[0]) for row in connection.execute(_QUERIES["searchable"], {"after": after})]
    search = _Search(hashes, text, wanted, time.monotonic() + within_s)
    search.found.go_on_after = after
    workers = min(CONNECTIONS, len(wanted))
    if workers:
        with ThreadPoolExecutor(workers) as executor:
            for done in [executor.submit(search.work, database) for _ in range(workers)]:
                done.result()
    return search.result()


class _Search:
    """What the connections share: which tenant is next, and what was found."""

    def __init__(self, hashes: KeyedHashes, text: str, wanted: Sequence[CustomerId], until: float) -> None:
        self._hashes = hashes
        self._text = text
        self._contact_id = int(text) if text.isascii() and text.isdigit() and 0 < int(text) < 2**63 else None
        self._digest = token_digest(text)
        self._wanted = wanted
        self._until = until
        self._lock = threading.Lock()
        self._taken = 0
        self.found = Found()

    def work(self, database: Database) -> None:
        queries = device_queries("lookup")
        with database.connect(Role.READER, autocommit=True) as connection:
            connection.execute(f"SET statement_timeout = {ANSWER_WITHIN_MS:d}")
            for customer_id in self._next_ones():
                try:
                    hits = self._ask(connection, queries["applications"], queries["search"], customer_id)
                except psycopg.Error:
                    if connection.closed:
                        raise  # the server is away: that is no single tenant's matter
                    with self._lock:
                        self.found.unreadable.append(customer_id)
                else:
                    with self._lock:
                        self.found.hits += hits

    def result(self) -> Found:
        found = self.found
        found.searched = self._taken - len(found.unreadable)
        found.left = len(self._wanted) - self._taken
        # Whoever takes a tenant asks it to the end: all before the first that nobody took are done.
        if self._taken:
            found.go_on_after = self._wanted[self._taken - 1]
        if not found.left:
            found.go_on_after = None
        found.hits.sort(key=lambda hit: (hit.customer_id, hit.kind, hit.application_code or ""))
        found.unreadable.sort()
        return found

    def _next_ones(self) -> Iterator[CustomerId]:
        while True:
            with self._lock:
                is_over = time.monotonic() > self._until or len(self.found.hits) >= MOST_HITS
                if is_over or self._taken == len(self._wanted):
                    return
                customer_id = self._wanted[self._taken]
                self._taken += 1
            yield customer_id

    def _ask(self, connection: Connection[Any], applications: str, search: str, customer_id: CustomerId) -> list[Hit]:
        codes = [code for (code,) in connection.execute(in_schema(applications, customer_id).encode(), prepare=False)]
        contact_id = self._contact_id
        wanted = {
            "text": self._text,
            "contact_id": contact_id,
            "contact": None if contact_id is None else self._hashes.contact(customer_id, contact_id),
            "applications": codes,
            "devices": [self._hashes.device(customer_id, code, self._text) for code in codes],
            "tokens": [self._hashes.token(customer_id, code, self._digest) for code in codes],
            "limit": MOST_HITS,
        }
        rows = connection.execute(in_schema(search, customer_id).encode(), wanted, prepare=False)
        return [
            Hit(
                kind,
                customer_id,
                application_code,
                client_id,
                contact,
                devices=number if kind == "contact" else None,
                deleted_at=time_of(number) if kind.startswith("deleted") else None,
            )
            for kind, application_code, client_id, contact, number in rows
        ]
