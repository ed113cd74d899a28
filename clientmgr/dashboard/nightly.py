"""Whether the work of the night was done: what each kind of it left in its tables, and when."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct
from psycopg import Connection

from clientmgr.sqlfiles import named_queries

_QUERIES = named_queries("dashboard/queries/nightly.sql")

LATE_AFTER: Final = timedelta(hours=36)
"""Done every night: a day and a half without is a night that was missed."""


class NightlyWork(Struct, frozen=True, rename="camel"):
    """One kind of work that is done every night."""

    name: str
    done_at: datetime | None
    """None: never yet."""
    failures: int
    """Tenants that it failed for, the last time."""
    state: str
    """`fresh`, `late` or `never`."""


def nightly_work(connection: Connection[Any], *, now: datetime | None = None) -> list[NightlyWork]:
    now = now or datetime.now(UTC)
    return [
        NightlyWork(name, done_at, failures, _state(done_at, now))
        for name, done_at, failures in connection.execute(_QUERIES["nightly_work"])
    ]


def _state(done_at: datetime | None, now: datetime) -> str:
    if done_at is None:
        return "never"
    return "late" if now - done_at > LATE_AFTER else "fresh"
