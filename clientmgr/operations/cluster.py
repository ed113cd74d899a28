"""Makes a Citus cluster ready for tenants when the coordinator's database is migrated, and says what a node lacks."""

from typing import Any, Final

import psycopg
from psycopg import Connection

from clientmgr.base.citus import spreads_tenants
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import SettingsError
from clientmgr.base.migrations import database_grants
from clientmgr.base.sql_statements import statements_of
from clientmgr.base.sqlfiles import named_queries

_QUERIES: Final = named_queries("operations/queries/citus.sql")
_TENANTS_ROLES: Final = (Role.DDL, Role.WRITER, Role.READER)


def prepare_cluster(database: Database, citus: str) -> None:
    """Check the nodes, and bring them what tenants need. Nothing where the database is no coordinator."""
    with database.connect(Role.OWNER, autocommit=True) as connection:
        if not spreads_tenants(connection, citus):
            return
        connection.execute("SET client_min_messages = warning")
        _refuse_incomplete(connection, Role.OWNER, statements_of(_QUERIES["what_a_node_has"])[0])
        grants = database_grants().as_string(connection)
        _refuse_incomplete(connection, Role.OWNER, grants, good="DO")
        for (function,) in connection.execute(_QUERIES["not_on_nodes"]).fetchall():
            connection.execute(_QUERIES["send_to_nodes"], {"function": function})
        if connection.execute(_QUERIES["is_known_to_nodes"]).fetchone() == (False,):
            _make_known(database)
        for (statement,) in connection.execute(_QUERIES["defaults"]).fetchall():
            connection.execute(statement)
    for role in _TENANTS_ROLES:
        with database.connect(role, autocommit=True) as connection:
            _refuse_incomplete(connection, role, "SELECT ''")


def _make_known(database: Database) -> None:
    with database.connect(Role.DDL, autocommit=True) as connection:
        for statement in statements_of(_QUERIES["make_known_to_nodes"]):
            connection.execute(statement.encode())


def _refuse_incomplete(connection: Connection[Any], role: Role, question: str, *, good: str = "") -> None:
    """Ask every node, as this role: nodes connect to each other as whoever asks."""
    login = connection.info.user if role is Role.OWNER else role
    try:
        answers = connection.execute(_QUERIES["nodes"], {"question": question}).fetchall()
    except psycopg.Error as error:
        raise SettingsError(f"Citus: the nodes can't be asked as {login}: {error}") from None
    problems = [
        f"{node} lacks {answer}" if succeeded else f"{node} does not let {login} in: {answer}"
        for node, succeeded, answer in answers
        if answer != good or not succeeded
    ]
    if problems:
        raise SettingsError(f"Citus: {'; '.join(problems)}. docs/citus.md says how to set nodes up")
