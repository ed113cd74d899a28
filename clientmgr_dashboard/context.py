"""What every operation works with: the settings, connections to the database, the audit log, and what is sampled."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

from psycopg import AsyncConnection, Connection
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from clientmgr.audit.log import AuditEntry, AuditLogger
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr_dashboard.sampling import LogSampler

READERS, WRITERS = 6, 2
CONNECTION_WITHIN_S = 5.0
ANSWER_WITHIN_MS = 15_000
"""A page that takes longer helps nobody, and keeps the database busy."""
BOUND = f"SET statement_timeout = {ANSWER_WITHIN_MS:d}"

FORGET_AFTER_S = 120.0
"""Longer than any answer is good for."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class SharedAnswers:
    """Answers that are computed once for everybody who asks at about the same moment."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._answers: dict[str, tuple[float, Any]] = {}

    async def answer(self, name: str, seconds: float, make: Callable[[], Awaitable[Result]]) -> Result:
        async with self._locks.setdefault(name, asyncio.Lock()):
            made_at, answer = self._answers.get(name, (float("-inf"), None))
            if time.monotonic() - made_at > seconds:
                answer = await make()
                self._forget_the_old()
                self._answers[name] = (time.monotonic(), answer)
            result: Result = answer
            return result

    def _forget_the_old(self) -> None:
        """Names may be what somebody looks for: they come and go."""
        now = time.monotonic()
        for name, (made_at, _) in list(self._answers.items()):
            if now - made_at > FORGET_AFTER_S and not self._locks[name].locked():
                del self._answers[name], self._locks[name]


@dataclass(frozen=True)
class Context:
    """What operations work with. It is opened once and serves all requests."""

    settings: Settings
    database: Database
    audit: AuditLogger
    sampler: LogSampler
    _reading: ConnectionPool[Connection[Any]]
    _writing: ConnectionPool[Connection[Any]]
    _reading_async: AsyncConnectionPool
    _writing_async: AsyncConnectionPool
    shared: SharedAnswers = field(default_factory=SharedAnswers)

    async def read(
        self,
        query: Callable[Concatenate[Connection[Any], Arguments], Result],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        """Run a function that reads, on its own thread and connection."""

        def run() -> Result:
            with self._reading.connection(CONNECTION_WITHIN_S) as connection:
                return query(connection, *arguments, **options)

        return await asyncio.to_thread(run)

    async def write(
        self,
        change: Callable[Concatenate[Connection[Any], Arguments], Result],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        """Run a function that changes something, on its own thread and connection, in autocommit mode."""

        def run() -> Result:
            with self._writing.connection(CONNECTION_WITHIN_S) as connection:
                return change(connection, *arguments, **options)

        return await asyncio.to_thread(run)

    async def record(self, entry: AuditEntry) -> None:
        """Append to the audit log, in its own transaction."""

        def append(connection: Connection[Any]) -> None:
            with connection.transaction():
                self.audit.append(connection, [entry])

        await self.write(append)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection[Any]]:
        async with self._reading_async.connection(CONNECTION_WITHIN_S) as connection:
            yield connection

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection[Any]]:
        async with self._writing_async.connection(CONNECTION_WITHIN_S) as connection:
            yield connection


@asynccontextmanager
async def opened_context(settings: Settings, database: Database) -> AsyncIterator[Context]:
    with (
        database.pool(Role.READER, size=READERS, configure=_bounded) as reading,
        database.pool(Role.WRITER, size=WRITERS) as writing,
    ):
        async with (
            database.pool_async(Role.READER, size=READERS, configure=_bounded_async) as reading_async,
            database.pool_async(Role.WRITER, size=WRITERS) as writing_async,
        ):
            sampler = LogSampler(reading_async)
            async with sampler.running():
                audit = AuditLogger.from_settings(settings)
                yield Context(settings, database, audit, sampler, reading, writing, reading_async, writing_async)


def _bounded(connection: Connection[Any]) -> None:
    connection.execute(BOUND)


async def _bounded_async(connection: AsyncConnection[Any]) -> None:
    await connection.execute(BOUND)
    await connection.commit()
