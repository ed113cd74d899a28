"""Connections that tasks share: used again while they answer, never after a failure."""

import pytest
from adbc_driver_postgresql import dbapi

from clientmgr.base.database import Database, Role
from clientmgr_dagster.spark.adbc import arrow_connection


def backend(connection: dbapi.Connection) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        row = cursor.fetchone()
    assert row is not None
    return int(row[0])


def fail_with(connection: dbapi.Connection) -> None:
    raise ValueError(f"a task that fails with backend {backend(connection)}")


def test_a_connection_is_used_again_while_it_answers_and_not_after_a_failure(database: Database) -> None:
    conninfo = database.conninfo(Role.READER)
    with arrow_connection(conninfo) as connection:
        first = backend(connection)
    with arrow_connection(conninfo) as connection, arrow_connection(conninfo) as another:
        assert backend(connection) == first
        assert backend(another) != first
    with arrow_connection(conninfo) as connection:
        kept = backend(connection)
    with database.connect(Role.OWNER) as owner:
        owner.execute("SELECT pg_terminate_backend(%s, 10000)", (kept,))
    with arrow_connection(conninfo) as connection:
        second = backend(connection)
    assert second != kept

    with pytest.raises(ValueError, match=f"backend {second}"), arrow_connection(conninfo) as connection:
        fail_with(connection)
    with pytest.raises(ValueError, match="backend") as failed, arrow_connection(conninfo) as connection:
        fail_with(connection)
    assert f"backend {second}" not in str(failed.value)


def test_what_a_task_has_not_committed_is_rolled_back(database: Database) -> None:
    conninfo = database.conninfo(Role.OWNER)
    with arrow_connection(conninfo) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE left_behind ()")
    with database.connect(Role.OWNER) as owner:
        assert owner.execute("SELECT to_regclass('left_behind')").fetchone() == (None,)
    with pytest.raises(ValueError, match="a task that fails"), arrow_connection(conninfo) as connection:
        fail_with(connection)
