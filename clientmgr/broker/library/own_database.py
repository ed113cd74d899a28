"""A library user's own PostgreSQL: all is done as the login of their URL, and only the log's tables are made there."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.conninfo import conninfo_to_dict

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import PermanentError, SettingsError
from clientmgr.base.migrations import apply_folders

LOG_FOLDERS: Final = ("base", "audit", "broker", "gateway", "publishing")
"""The log, and what its own tools look into. `clientmgr migrate` adds the rest of the system, if anybody wants it."""
NOT_FOR_THE_LOG: Final = frozenset({"base/0003_dagster_login.sql"})


class LogTablesError(PermanentError):
    """The log's tables are missing, or this login may not use them."""


@dataclass(frozen=True)
class OwnDatabase(Database):
    """Whatever role is asked for, a connection acts as its login: a handler writes its program's own tables."""

    def conninfo(self, role: Role, *, lock_timeout_ms: int | None = None) -> str:
        return super().conninfo(Role.OWNER, lock_timeout_ms=lock_timeout_ms)

    def connect(
        self, role: Role, *, autocommit: bool = False, lock_timeout_ms: int | None = None
    ) -> Connection[tuple[Any, ...]]:
        return super().connect(Role.OWNER, autocommit=autocommit, lock_timeout_ms=lock_timeout_ms)

    async def connect_async(self, role: Role, *, autocommit: bool = False) -> AsyncConnection[tuple[Any, ...]]:
        return await super().connect_async(Role.OWNER, autocommit=autocommit)


def own_database(url: str) -> OwnDatabase:
    """Refuses what is no connection string, without repeating it: there may be a password in it."""
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise SettingsError("open_broker: expected a URL like postgresql://user:password@host:5432/database") from None
    return OwnDatabase(url)


def migrate_log(database: Database) -> list[str]:
    """Make the log's tables, or bring them to this release. Returns the names of the files applied."""
    with database.connect(Role.OWNER, autocommit=True) as connection, connection.transaction():
        try:
            return apply_folders(connection, LOG_FOLDERS, without=NOT_FOR_THE_LOG)
        except psycopg.errors.InsufficientPrivilege as error:
            raise LogTablesError(
                f"migrate: {error.diag.message_primary}: the login needs CREATE on the database and CREATEROLE, once; "
                "or an administrator runs it"
            ) from error


@contextlib.contextmanager
def missing_tables_explained() -> Iterator[None]:
    """Say what to do about a log that is not there, or that is not open to this login."""
    try:
        yield
    except (
        psycopg.errors.UndefinedTable,
        psycopg.errors.UndefinedColumn,
        psycopg.errors.UndefinedFunction,
        psycopg.errors.InvalidSchemaName,
    ) as error:
        raise LogTablesError(
            f"{error.diag.message_primary}: the log's tables are missing or older than this release: "
            "`await broker.migrate()` makes them"
        ) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise LogTablesError(
            f"{error.diag.message_primary}: let the login use the log: GRANT clientmgr_writer TO your_login"
        ) from error
