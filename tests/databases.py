"""Databases for single tests, made from a template and dropped again: what most tests begin and end with."""

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any, Protocol

import psycopg
from psycopg import Connection, sql

from clientmgr.base.database import Database, Role
from clientmgr.base.logins import LOGINS
from clientmgr.base.migrations import ensure_database_grants
from clientmgr.contracts.handing_out import LOGIN_SETTINGS
from clientmgr.local.embedded.postgres_logins import OWNER


class Server(Protocol):
    """What is asked of a server on which databases are made."""

    def superuser_url(self, database: str = ...) -> str: ...
    def url(self, database: str) -> str: ...
    def role_settings(self, database: str) -> dict[str, str]: ...


class Databases:
    """Makes and drops databases, over one connection as long as that lives."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection: Connection[Any] | None = None

    def __enter__(self) -> "Databases":
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def create(self, name: str, template: str = "template1") -> None:
        """A database of the owner's, with the rights that migrations give: no copy of a database carries them."""
        # Files are copied as files: to write the copy to the log as well, as is the default, takes twice the time.
        statement = "CREATE DATABASE {} OWNER {} TEMPLATE {} STRATEGY FILE_COPY"
        names = sql.Identifier(name), sql.Identifier(OWNER), sql.Identifier(template)
        connection = self._execute(sql.SQL(statement).format(*names))
        if template != "template1":
            ensure_database_grants(connection, name)

    @contextlib.contextmanager
    def throwaway(self, template: str = "template1") -> Iterator[Database]:
        name = f"test_{uuid.uuid4().hex[:12]}"
        self.create(name, template)
        yield self.on(name)
        self.drop(name)

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """While a template is made, where only one can be at a time."""
        return contextlib.nullcontext()

    def drop(self, name: str) -> None:
        # As superuser: the owner may not end what another role left connected.
        self._execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def on(self, name: str) -> Database:
        return database_on(self._server, name)

    def _execute(self, statement: sql.Composed) -> Connection[Any]:
        """A test may have ended all connections, or the server."""
        if self._connection is not None:
            try:
                self._connection.execute(statement)
                return self._connection
            except psycopg.OperationalError:
                if not self._connection.broken:
                    raise
        self._connection = psycopg.connect(self._server.superuser_url(), autocommit=True)
        self._connection.execute(statement)
        return self._connection


def database_on(server: Server, name: str) -> Database:
    """A database of the server, with a login for each role."""
    urls = server.role_settings(name)
    return Database(server.url(name), {role: urls[LOGINS[role]] for role in LOGIN_SETTINGS})


def cut_readers(database: Database, table: str) -> int:
    """End the connections that last read this table, as a server's restart would. Returns how many there were."""
    with database.connect(Role.OWNER, autocommit=True) as connection:
        found = connection.execute(
            "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE %s",
            [f"%FROM clientmgr.{table}%"],
        )
        return len(found.fetchall())
