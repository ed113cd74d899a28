"""How a run is getting on, asked over one connection that outlives restarts of the server."""

import random
import time
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.rows import tuple_row

from clientmgr.base.database import Database, Role
from tests.broker.faults.check import QUERIES

ANSWER_WITHIN_S = 30.0
PAUSE_S = 0.05


class Observer:
    """Close it at the end."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Connection[tuple[Any, ...]] | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def handled(self) -> int:
        """Rows written by handlers so far, those that were rolled back included."""
        return int(self._rows("SELECT last_value FROM faults.handled_id_seq")[0][0])

    def published(self) -> int:
        return int(self._rows("SELECT coalesce(sum(size), 0) FROM faults.published")[0][0])

    def unread(self) -> int:
        return int(self._rows(QUERIES["unread"])[0][0])

    def terminate_a_backend(self, rng: random.Random) -> bool:
        """End the session of a publisher or consumer. False: there was none, or it was gone already."""
        backends = self._rows(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE 'faults %%' ORDER BY pid"
        )
        return bool(backends and self._rows("SELECT pg_terminate_backend(%s)", rng.choice(backends))[0][0])

    def _rows(self, query: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        deadline = time.monotonic() + ANSWER_WITHIN_S
        while True:
            try:
                if self._connection is None:
                    self._connection = self._database.connect(Role.OWNER, autocommit=True)
                with self._connection.cursor(row_factory=tuple_row) as cursor:
                    return cursor.execute(query.encode(), parameters).fetchall()
            except psycopg.OperationalError:
                self.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(PAUSE_S)
