"""One scan of a DynamoDB table at a time, whichever run asks for it: its share of the capacity is the table's.

The turn is an advisory lock in PostgreSQL on a connection of its own: it goes with the process. Who waits asks again
and again. A statement that waits for the lock would have a snapshot meanwhile, which holds back VACUUM.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import psycopg

from clientmgr.base.database import Database, Role
from clientmgr.base.logs import get_logger

log = get_logger(__name__)

PAUSE_S: Final = 1.0

_TAKE: Final = "SELECT pg_try_advisory_lock(hashtext('scan of DynamoDB'), hashtext(%s))"


@contextmanager
def turn_to_scan(database: Database, table: str) -> Iterator[None]:
    """Wait until nobody else scans the table. An interrupt ends the wait."""
    # The writer's: readers may be led to replicas, each of which has locks of its own.
    connection = database.connect(Role.WRITER, autocommit=True)
    try:
        # It has nothing to say while the scan lasts.
        connection.execute("SET idle_session_timeout = 0")
        waits = False
        while connection.execute(_TAKE, (table,)).fetchone() != (True,):
            if not waits:
                log.info("another run scans the table: waiting for it to end", table=table)
            waits = True
            time.sleep(PAUSE_S)
        yield
    finally:
        # Closing gives the turn back.
        with suppress(psycopg.Error):
            connection.close()
