"""Arrow connections to PostgreSQL, which each of Spark's Python workers keeps from task to task.

To open one, ADBC reads every type that the database has, and each tenant's tables are types: with a thousand tenants
that is a second, and sixteen tasks in a job would each pay it.
"""

import contextlib
import os
from collections.abc import Iterator

import adbc_driver_manager
from adbc_driver_postgresql import dbapi

from clientmgr.base.connection_rights import WHO_IT_IS, refuse_unless, role_taken_by

_idle: dict[tuple[int, str], dbapi.Connection] = {}
"""By process (a worker may be forked from one that has some) and connection string. None is in a transaction."""


@contextlib.contextmanager
def arrow_connection(conninfo: str) -> Iterator[dbapi.Connection]:
    """A connection for a task. What the task has not committed is rolled back; after a failure it is not used again."""
    key = os.getpid(), conninfo
    connection = _idle.pop(key, None)
    if connection is not None and not still_answers(connection):
        _close(connection)
        connection = None
    connection = connection or _connect(conninfo)
    try:
        yield connection
        connection.rollback()
    except BaseException:
        _close(connection)
        raise
    if key in _idle:
        _close(connection)
    else:
        _idle[key] = connection


def still_answers(connection: dbapi.Connection) -> bool:
    """Whether the server is there. Ends the transaction that a failure has left behind."""
    with contextlib.suppress(adbc_driver_manager.Error):
        connection.rollback()
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
        connection.rollback()
        return True
    return False


def _connect(conninfo: str) -> dbapi.Connection:
    connection = dbapi.connect(conninfo)
    try:
        with connection.cursor() as cursor:
            cursor.execute(WHO_IT_IS)
            refuse_unless(role_taken_by(conninfo), cursor.fetchone())
        connection.rollback()
    except BaseException:
        _close(connection)
        raise
    return connection


def _close(connection: dbapi.Connection) -> None:
    with contextlib.suppress(adbc_driver_manager.Error):
        connection.close()
