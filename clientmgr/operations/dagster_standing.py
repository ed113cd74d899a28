"""How Dagster is doing, by its own tables: its jobs' runs, and whether its daemon lives. Read only, a few look-ups."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg
from msgspec import Struct
from psycopg import Connection
from psycopg.conninfo import make_conninfo
from psycopg.rows import class_row

from clientmgr.base.connection_rights import connect_checked
from clientmgr.base.errors import ClientManagerError
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.operations.dagster_addresses import dagster_database_url

_QUERIES = named_queries("dagster/queries/standing.sql")

DAEMON_DEAD_AFTER_S: Final = 240.0
"""Each thread of Dagster's daemon says every 90 s that it lives (clientmgr_dagster/daemon)."""
THREAD_STUCK_AFTER_S: Final = 900.0
"""One of its threads may be busy for long, with a backfill for one."""
CONNECT_WITHIN_S: Final = 3
ANSWER_WITHIN_MS: Final = 2000


class JobRuns(Struct, frozen=True):
    """The newest runs of a job, by how they ended."""

    job: str
    succeeded_run: str | None
    succeeded_at: float | None
    """Epoch seconds, as Dagster keeps it."""
    failed_run: str | None
    failed_at: float | None
    is_under_way: bool


class DagsterStanding(Struct, frozen=True):
    runs: dict[str, JobRuns]
    """By job."""
    heard_of: datetime | None
    """When Dagster's daemon last said that it lives."""
    stuck: list[str]
    """Its threads that have not said so for long, while others have."""
    last_tick: datetime | None
    last_run: datetime | None
    problem: str = ""
    """Why nothing is known."""

    @property
    def daemon_lives(self) -> bool:
        return self.heard_of is not None and _age(self.heard_of) <= timedelta(seconds=DAEMON_DEAD_AFTER_S)


def dagster_standing(settings: Settings, jobs: Sequence[str]) -> DagsterStanding:
    """Never raises because Dagster's tables are not there: that is an answer too."""
    try:
        conninfo = make_conninfo(dagster_database_url(settings), connect_timeout=CONNECT_WITHIN_S)
        with connect_checked(conninfo) as connection:
            connection.execute(f"SET statement_timeout = {ANSWER_WITHIN_MS:d}")
            return _read(connection, jobs)
    except psycopg.errors.UndefinedTable:
        return DagsterStanding({}, None, [], None, None, "Dagster has not run yet: it has no tables")
    except (psycopg.Error, ClientManagerError, OSError) as error:
        said = str(error).strip().split("\n")[0]
        return DagsterStanding({}, None, [], None, None, f"Dagster's tables can't be read: {said}")


def _read(connection: Connection[Any], jobs: Sequence[str]) -> DagsterStanding:
    with connection.cursor(row_factory=class_row(JobRuns)) as cursor:
        runs = {one.job: one for one in cursor.execute(_QUERIES["runs"], {"jobs": list(jobs)})}
    threads = connection.execute(_QUERIES["daemon"]).fetchall()
    ((last_tick, last_run),) = connection.execute(_QUERIES["last_work"]).fetchall()
    now = datetime.now(UTC)
    silent = min((seconds for _, seconds in threads), default=None)
    return DagsterStanding(
        runs,
        None if silent is None else now - timedelta(seconds=silent),
        [name.lower() for name, seconds in threads if seconds > THREAD_STUCK_AFTER_S],
        moment(last_tick),
        moment(last_run),
    )


def moment(epoch_s: float | None) -> datetime | None:
    return None if epoch_s is None else datetime.fromtimestamp(epoch_s, UTC)


def _age(at: datetime) -> timedelta:
    return datetime.now(UTC) - at
