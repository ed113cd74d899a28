"""Whether the nightly jobs are done: what each left in its tables, and when."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct
from psycopg import Connection

from clientmgr.base.sqlfiles import named_queries

_QUERIES = named_queries("operations/queries/nightly_jobs.sql")
_STANDING = named_queries("operations/queries/standing.sql")

_FOR_EVERY_TENANT: Final = {"tenant metrics": "dashboard", "orphan search": "orphan_search"}
"""Jobs that run for each tenant, and their names in the metrics. They count as late if a single tenant waits."""

LATE_AFTER: Final = timedelta(hours=36)
"""A job runs every night: a day and a half without it means that a night was missed."""


class NightlyWork(Struct, frozen=True, rename="camel"):
    """A job that runs every night."""

    name: str
    done_at: datetime | None
    """When it was last done. Of a job for each tenant, the tenant that waits longest counts. None: never yet."""
    failures: int
    """Tenants for which it failed the last time."""
    state: str
    """`fresh`, `late`, or `never`: not done yet, and no tenant has waited a night for it."""


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
    """`waiting_since`: since when a tenant waits, at the earliest since its activation. None: no tenant waits."""
    waiting_since = waiting_since or last_done_at
    done_at = None if last_done_at is None else waiting_since
    if waiting_since is not None and now - waiting_since > LATE_AFTER:
        return NightlyWork(name, done_at, failures, "late")
    return NightlyWork(name, done_at, failures, "never" if done_at is None else "fresh")
