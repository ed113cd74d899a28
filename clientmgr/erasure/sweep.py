"""Erases what is deleted from everything of ours that keeps messages, and from the tables that name devices.

It goes page by page in short transactions. A sweep that is killed leaves each message as it was or erased; the next one
goes on. Whoever reads the log meanwhile finds the one or the other, at its place.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import psycopg
from psycopg import Connection

from clientmgr.audit.log import AuditLogger
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import PermanentError, SettingsError, TransientError
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.erasure import hash_expiry, log_messages, other_places, waiting_messages
from clientmgr.erasure.deletions import GONE_MEANWHILE, Lookup, standing
from clientmgr.erasure.pages import Sieve, Swept, fetch

log = get_logger(__name__)

QUERIES = named_queries("erasure/queries/sweeps.sql")

OVERLAP: Final = timedelta(minutes=15)
"""A deletion carries the time at which its transaction began. It may have ended after the last sweep began."""
LOCK_TIMEOUT_MS: Final = 5000
EVER: Final = datetime.fromtimestamp(0, UTC)


class SweepRunningError(TransientError):
    """Another process sweeps."""


class SweepStoppedError(PermanentError):
    """We were told to stop. The next sweep goes on."""


@dataclass(slots=True)
class Report:
    """What a sweep did, by place."""

    started_at: datetime
    finished_at: datetime | None = None
    looked_at: dict[str, int] = field(default_factory=dict)
    """Messages."""
    erased: dict[str, int] = field(default_factory=dict)
    """Messages, and rows that name devices."""
    rewritten: dict[str, int] = field(default_factory=dict)
    """Messages that stay without those who are deleted."""
    hashes_expired: int = 0

    def add(self, place: str, *, looked_at: int = 0, erased: int = 0, rewritten: int = 0) -> None:
        for counts, count in ((self.looked_at, looked_at), (self.erased, erased), (self.rewritten, rewritten)):
            if count:
                counts[place] = counts.get(place, 0) + count

    def as_json(self) -> str:
        counts = {"lookedAt": self.looked_at, "erased": self.erased, "rewritten": self.rewritten}
        return msgspec.json.encode(counts | {"hashesExpired": self.hashes_expired}).decode()


OnProgress = Callable[[str, Report], None]
"""Called after each page, with the place."""


def sweep(
    database: Database,
    settings: Settings,
    *,
    stop: threading.Event | None = None,
    rest: float = 0.0,
    on_progress: OnProgress = lambda place, report: None,
) -> Report:
    """Erase all that was deleted before now. `rest`: how long to pause after a page, as a share of its time."""

    def connect() -> Connection[Any]:
        return database.connect(Role.WRITER, autocommit=True, lock_timeout_ms=LOCK_TIMEOUT_MS)

    audit = AuditLogger.from_settings(settings)
    with _only_one(connect) as connection:
        _check_key(connection, audit.key_id)
        ((last,),) = fetch(connection, QUERIES["last_finished"])
        ((sweep_id, started_at),) = fetch(connection, QUERIES["begin"])
        report = Report(started_at)
        pace = _Pace(stop or threading.Event(), rest)
        try:
            for place in _steps(connect, connection, settings, last, report):
                on_progress(place, report)
                pace.take()
        except Exception as error:
            if not connection.broken:
                # The class alone: a text may quote what was to be erased.
                fetch(connection, QUERIES["fail"], id=sweep_id, error=type(error).__name__, counts=report.as_json())
            raise
        ((report.finished_at,),) = fetch(connection, QUERIES["finish"], id=sweep_id, counts=report.as_json())
        fetch(connection, QUERIES["forget"])
    log.info("swept", erased=report.erased, rewritten=report.rewritten, hashes_expired=report.hashes_expired)
    return report


def _steps(
    connect: Callable[[], Connection[Any]],
    connection: Connection[Any],
    settings: Settings,
    last: datetime | None,
    report: Report,
) -> Iterator[str]:
    """Do the work, and say after each page in which place it was."""
    found = standing(connect, EVER if last is None else last - OVERLAP)
    sieve = Sieve(Lookup(KeyedHashes.from_settings(settings), found), report.started_at)
    pages: Iterator[Swept] = log_messages.sweep(connection, sieve, found.changed)
    for topic, looked_at, changes in pages:
        erased = sum(change.erased for change in changes)
        report.add(topic, looked_at=looked_at, erased=erased, rewritten=len(changes) - erased)
        yield topic
    for table, looked_at, changes in waiting_messages.sweep(connection, sieve):
        erased = sum(change.erased for change in changes)
        report.add(table, looked_at=looked_at, erased=erased, rewritten=len(changes) - erased)
        yield table
    for table, erased in other_places.sweep(connection, settings, sieve.lookup):
        report.add(table, erased=erased)
        yield table
    if found.changed:
        yield from _forget_statistics(connection, found.changed)
    if last is None or last.date() != report.started_at.date():  # once a day
        for expired in hash_expiry.expire(connect, settings):
            report.hashes_expired += expired
            yield "hashes"


def _forget_statistics(connection: Connection[Any], customers: frozenset[CustomerId]) -> Iterator[str]:
    """The planner keeps values of rows that are gone until their table is analysed again."""
    for customer in sorted(customers):
        # Somebody else analyses it, or it is gone with its account: neither needs us.
        with contextlib.suppress(psycopg.errors.LockNotAvailable, *GONE_MEANWHILE):
            fetch(connection, QUERIES["analyze_tenant"], customer_id=customer)
        yield "statistics"
    with contextlib.suppress(psycopg.errors.LockNotAvailable):
        fetch(connection, QUERIES["analyze_messages"])
    yield "statistics"


def latest(connection: Connection[Any], limit: int) -> list[dict[str, Any]]:
    """The newest sweeps: when each began and ended, what it did, and the class of its error."""
    names = ("started_at", "finished_at", "counts", "error")
    return [dict(zip(names, row, strict=True)) for row in fetch(connection, QUERIES["latest"], limit=limit)]


def _check_key(connection: Connection[Any], key_id: str) -> None:
    """With another key nothing that is deleted would be recognised, and the sweep would say that all is erased."""
    for (in_use,) in fetch(connection, QUERIES["key_in_use"]):
        if in_use != key_id:
            raise SettingsError("AUDIT_HASH_KEY: expected the key of the audit log's newest row, got another one")


class _Pace:
    """Leaves the machine to others between pages, and ends the sweep between two of them."""

    def __init__(self, stop: threading.Event, rest: float) -> None:
        self._stop = stop
        self._rest = rest
        self._since = time.monotonic()

    def take(self) -> None:
        if self._stop.wait((time.monotonic() - self._since) * self._rest):
            raise SweepStoppedError("stopped; the next sweep goes on")
        self._since = time.monotonic()


@contextmanager
def _only_one(connect: Callable[[], Connection[Any]]) -> Iterator[Connection[Any]]:
    with connect() as connection:
        ((alone,),) = fetch(connection, QUERIES["lock"])
        if not alone:
            raise SweepRunningError("another process sweeps already")
        yield connection
