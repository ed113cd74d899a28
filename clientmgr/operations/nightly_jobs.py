"""Whether the work of the night was done: what each kind of it left in its tables, and when."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct
from psycopg import Connection

from clientmgr.base.sqlfiles import named_queries

_QUERIES = named_queries("operations/queries/nightly_jobs.sql")
_STANDING = named_queries("operations/queries/standing.sql")

_FOR_EVERY_TENANT: Final = {"tenant metrics": "dashboard", "orphan search": "orphan_search"}
"""What is done for each tenant, and what the metrics call it. One tenant that was left out is one too many."""

LATE_AFTER: Final = timedelta(hours=36)
"""Done every night: a day and a half without is a night that was missed."""


class NightlyWork(Struct, frozen=True, rename="camel"):
    """One kind of work that is done every night."""

    name: str
    done_at: datetime | None
    """Up to when it is done: where it is done for every tenant, the one that waits longest counts. None: never yet."""
    failures: int
    """Tenants that it failed for, the last time."""
    state: str
    """`fresh`, `late` or `never`: not yet, and no tenant has waited a night for it."""


def nightly_work(connection: Connection[Any], *, now: datetime | None = None) -> list[NightlyWork]:
    now = now or datetime.now(UTC)
    waiting_since: dict[str, datetime] = dict(connection.execute(_STANDING["work"]).fetchall())
    return [
        _judged(name, last_done_at, failures, waiting_since.get(_FOR_EVERY_TENANT.get(name, "")), now)
        for name, last_done_at, failures in connection.execute(_QUERIES["nightly_work"])
    ]


def _judged(
    name: str, last_done_at: datetime | None, failures: int, waiting_since: datetime | None, now: datetime
) -> NightlyWork:
    """`waiting_since`: since when some tenant waits, its activation at the earliest. None: nobody waits for it."""
    waiting_since = waiting_since or last_done_at
    done_at = None if last_done_at is None else waiting_since
    if waiting_since is not None and now - waiting_since > LATE_AFTER:
        return NightlyWork(name, done_at, failures, "late")
    return NightlyWork(name, done_at, failures, "never" if done_at is None else "fresh")
