"""How far the tables have come that daemons write and nobody counts: cheap enough for every few minutes."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row

from clientmgr.base.sqlfiles import named_queries

_QUERIES = named_queries("operations/queries/store_progress.sql")


@dataclass(frozen=True, slots=True)
class StoreProgress:
    """Counters that only grow, except that PostgreSQL's own begins anew after a crash."""

    positions_written: int
    sweep: int
    """The last finished erasure sweep. 0: none yet."""
    sweep_began: datetime | None
    sweep_found: int
    """What it erased, in all places together."""


def store_progress(connection: Connection[Any]) -> StoreProgress:
    with connection.cursor(row_factory=class_row(StoreProgress)) as cursor:
        (found,) = cursor.execute(_QUERIES["store_progress"]).fetchall()
    return found
