"""Where PostgreSQL is and as whom to talk to it: a login for each role, and a connection for each kind of work."""

import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from clientmgr.base.connection_rights import checked, checked_async
from clientmgr.base.errors import SettingsError
from clientmgr.base.prompt_connections import PromptConnection
from clientmgr.base.settings import Settings

# A backend that has touched thousands of tenant schemas has cached them all (165 MB after 2,000): renew it at times.
CONNECTION_LIFETIME_S = 1800.0

# A host that is gone without a word is given up after half a minute: by probes while we wait for it, by the limit if it
# does not even acknowledge what we send. By default the kernel takes two hours, or a quarter of one. libpq passes over
# them where the connection is no TCP, and where the system has no such thing.
NOTICE_SILENT_HOSTS = {
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


class Role(enum.StrEnum):
    """The database roles. Work runs as the least of them that can do it."""

    OWNER = "owner"
    """Whoever DATABASE_URL names: owns the control schema and migrates it. No daemon is ever handed it."""
    DDL = "clientmgr_ddl"
    """Owns the tenant schemas; creates, migrates and drops them."""
    WRITER = "clientmgr_writer"
    """Reads and writes rows; appends to the audit log."""
    READER = "clientmgr_reader"
    """Reads."""


@dataclass(frozen=True)
class Database:
    """One PostgreSQL database and the logins for its roles."""

    url: str
    """The owner's. Empty in processes that migrate nothing."""
    role_urls: dict[Role, str] = field(default_factory=dict)
    application_name: str = "clientmgr"

    @classmethod
    def from_settings(cls, settings: Settings) -> "Database":
        role_urls = {
            Role.DDL: settings.database_ddl_url,
            Role.WRITER: settings.database_writer_url,
            Role.READER: settings.database_reader_url,
        }
        return cls(settings.database_url, {role: url for role, url in role_urls.items() if url})

    def conninfo(self, role: Role, *, lock_timeout_ms: int | None = None) -> str:
        """libpq's connection string for `role`. A login of another name takes the role at log-in: no statement can
        forget it."""
        params: dict[str, Any] = conninfo_to_dict(self._url_of(role))
        options = [str(params.get("options") or "")]
        if role is not Role.OWNER and params.get("user") != role:
            options.append(f"-c role={role}")
        if lock_timeout_ms is not None:
            options.append(f"-c lock_timeout={lock_timeout_ms:d}")
        params["options"] = " ".join(filter(None, options)) or None
        params.setdefault("application_name", self.application_name)
        params.setdefault("connect_timeout", 10)
        return make_conninfo(**{**NOTICE_SILENT_HOSTS, **params})

    def _url_of(self, role: Role) -> str:
        url = self.role_urls.get(role, self.url)
        if not url:
            name = "DATABASE_URL" if role is Role.OWNER else f"DATABASE_{role.name}_URL"
            raise SettingsError(f"{name}: not set, and this needs the login of {role}")
        return url

    def connect(
        self, role: Role, *, autocommit: bool = False, lock_timeout_ms: int | None = None
    ) -> Connection[tuple[Any, ...]]:
        """A connection that acts as `role` and can't act as more: refused otherwise."""
        connection = psycopg.connect(self.conninfo(role, lock_timeout_ms=lock_timeout_ms), autocommit=autocommit)
        if role is not Role.OWNER:
            checked(connection, role)
        return connection

    async def connect_async(self, role: Role, *, autocommit: bool = False) -> AsyncConnection[tuple[Any, ...]]:
        """As `connect`."""
        connection = await PromptConnection.connect(self.conninfo(role), autocommit=autocommit)
        if role is not Role.OWNER:
            await checked_async(connection, role)
        return connection

    def pool(
        self, role: Role, *, size: int, min_size: int = 0, configure: Callable[[Connection[Any]], None] | None = None
    ) -> ConnectionPool[Connection[Any]]:
        """A pool of autocommit connections for worker threads, open at once: use it as `with`."""

        def check_and_configure(connection: Connection[Any]) -> None:
            if role is not Role.OWNER:
                checked(connection, role)
            if configure is not None:
                configure(connection)

        return ConnectionPool(
            self.conninfo(role),
            min_size=min_size,
            max_size=size,
            max_lifetime=CONNECTION_LIFETIME_S,
            kwargs={"autocommit": True},
            configure=check_and_configure,
            open=True,
        )

    def pool_async(
        self,
        role: Role,
        *,
        size: int,
        min_size: int = 0,
        timeout_s: float = 30.0,
        autocommit: bool = False,
        probed: bool = True,
        configure: Callable[[AsyncConnection[Any]], Awaitable[None]] | None = None,
    ) -> AsyncConnectionPool:
        """A pool, not yet open: use it as `async with`. Who waits longer than `timeout_s` for a connection fails.

        A connection is probed before each use, unless whoever meets a dead one can do without.
        """

        async def check_and_configure(connection: AsyncConnection[Any]) -> None:
            if role is not Role.OWNER:
                await checked_async(connection, role)
            if configure is not None:
                await configure(connection)

        return AsyncConnectionPool(
            self.conninfo(role),
            min_size=min_size,
            max_size=size,
            timeout=timeout_s,
            max_lifetime=CONNECTION_LIFETIME_S,
            kwargs={"autocommit": autocommit},
            check=AsyncConnectionPool.check_connection if probed else None,
            configure=check_and_configure,
            open=False,
        )
