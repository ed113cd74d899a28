"""Whether the regular jobs are done: what each left in its tables, how its newest runs ended, and when."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct
from psycopg import Connection
from psycopg.rows import class_row

from clientmgr.base.sqlfiles import named_queries
from clientmgr.operations.dagster_standing import JobRuns, moment

_QUERIES = named_queries("operations/queries/nightly_jobs.sql")
_STANDING = named_queries("operations/queries/standing.sql")

_FOR_EVERY_TENANT: Final = {"tenant metrics": "dashboard", "orphan search": "orphan_search"}
"""Jobs that run for each tenant, and their names in the metrics. They count as late if a single tenant waits."""

DAGSTER_JOBS: Final = {
    "tenant metrics": "dashboard_job",
    "orphan search": "orphan_deletion_job",
    "orphan deletion": "orphan_deletion_job",
    "contact deletion": "contact_deletion_job",
    "contact deletion reconciliation": "contact_deletion_reconciliation_job",
    "audit verification": "audit_verification_job",
    "legacy migration": "legacy_migration_job",
    "pruning of Dagster's log": "prune_event_log",
}
"""Which job of Dagster does what is listed. The rest is the gateway's. A test compares them with the schedules."""

LATE_AFTER: Final = timedelta(hours=36)
"""A job runs every night: a day and a half without it means that a night was missed."""
NEVER_LATE: Final = frozenset({"legacy migration"})
"""It has nothing to do while no customer is being migrated."""


class NightlyWork(Struct, frozen=True, rename="camel"):
    """A job that runs every night, or more often."""

    name: str
    done_at: datetime | None
    """Up to when it is done. Of a job for each tenant, the tenant that waits longest counts. None: never yet."""
    failures: int
    """Tenants for which it failed the last time; of the audit's verification, what it found."""
    state: str
    """`fresh`, `late`, `failed` (its newest run), or `never`: not done yet, and no tenant has waited a night for it."""
    succeeded_at: datetime | None = None
    """When its newest run that succeeded ended, whatever there was to do."""
    failed_at: datetime | None = None
    is_under_way: bool = False
    succeeded_run: str | None = None
    """In Dagster."""
    failed_run: str | None = None


def nightly_work(
    connection: Connection[Any], runs: dict[str, JobRuns] | None = None, *, now: datetime | None = None
) -> list[NightlyWork]:
    """`runs`: of Dagster's jobs, where they could be read."""
    now = now or datetime.now(UTC)
    waiting_since: dict[str, datetime] = dict(connection.execute(_STANDING["work"]).fetchall())
    with connection.cursor(row_factory=class_row(_Left)) as cursor:
        left = cursor.execute(_QUERIES["nightly_work"]).fetchall()
    return [
        _judged(
            one,
            (runs or {}).get(DAGSTER_JOBS.get(one.work, "")),
            waiting_since.get(_FOR_EVERY_TENANT.get(one.work, "")),
            now,
        )
        for one in left
    ]


class _Left(Struct, frozen=True):
    """What a job left in its tables."""

    work: str
    done_at: datetime | None
    failures: int
    failed_at: datetime | None


def _judged(left: _Left, runs: JobRuns | None, waiting_since: datetime | None, now: datetime) -> NightlyWork:
    """`waiting_since`: since when a tenant waits, at the earliest since its activation. None: no tenant waits."""
    last_done_at = succeeded_at = left.done_at
    failed_at = left.failed_at
    if runs is not None:
        # A run that found nothing to do has left nothing in its tables, and was done all the same.
        succeeded_at = max(filter(None, (last_done_at, moment(runs.succeeded_at))), default=None)
        failed_at = moment(runs.failed_at) or failed_at
    waiting_since = waiting_since or succeeded_at
    done_at = None if last_done_at is None and succeeded_at is None else waiting_since
    if left.work not in NEVER_LATE and waiting_since is not None and now - waiting_since > LATE_AFTER:
        state = "late"
    elif failed_at is not None and (succeeded_at is None or failed_at > succeeded_at):
        state = "failed"
    else:
        state = "never" if done_at is None else "fresh"
    return NightlyWork(
        left.work,
        done_at,
        left.failures,
        state,
        succeeded_at,
        failed_at,
        runs is not None and runs.is_under_way,
        None if runs is None else runs.succeeded_run,
        None if runs is None else runs.failed_run,
    )
