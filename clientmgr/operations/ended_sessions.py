"""Which sessions of the dashboard have ended: in memory, told of changes, and read again when the connection is back.

The dashboard ends them; whoever takes a session, or a live token made from one, asks here.
"""

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import psycopg
from psycopg import Connection

from clientmgr.base.database import Database, Role
from clientmgr.base.logs import get_logger
from clientmgr.base.notifications import listen
from clientmgr.base.sqlfiles import named_queries
from clientmgr.base.waiting import being_cancelled

log = get_logger(__name__)

CHANNEL: Final = "ended_sessions"
READ_EVERY_S = 18.0
"""Changes are notified. A read finds what no notification told."""
READ_AGAIN_S = 3.0
"""After a read that failed: a few more fit into `STALE_AFTER_S`."""
STALE_AFTER_S = 30.0
"""Without a read for so long, nobody knows who has signed out meanwhile."""
_QUERIES = named_queries("operations/queries/ended_sessions.sql")


class EndedSessions:
    """What has ended, as far as this process knows."""

    def __init__(
        self,
        database: Database,
        *,
        changed: Callable[[], None] = lambda: None,
        store: Callable[[Mapping[str, tuple[str, float]]], None] = lambda _: None,
    ) -> None:
        """`store`: puts what ends here into the database, for whoever may (`ending_sessions`)."""
        self._database = database
        self._store_ended = store
        self._on_change = changed
        self._sessions: frozenset[str] = frozenset()
        self._users: Mapping[str, float] = {}
        self._unstored: dict[str, tuple[str, float]] = {}
        self._own: set[str] = set()  # ended here, and not read back yet
        self._read_at = float("-inf")
        self._news = asyncio.Event()
        self.loaded = asyncio.Event()
        self._connection: Connection[Any] | None = None
        """Kept from read to read."""
        self._keeps = True
        self._keeping = threading.Lock()

    @property
    def is_current(self) -> bool:
        return time.monotonic() - self._read_at < STALE_AFTER_S

    def is_ended(self, session_id: str, user: str, started_at: float) -> bool:
        """What has no session, such as a token that another backend made, never ends here."""
        return bool(session_id) and (
            session_id in self._sessions
            or session_id in self._own
            or (bool(user) and started_at <= self._users.get(user, float("-inf")))
        )

    async def end(self, session_id: str, user: str, expires_at: float) -> None:
        """End a session: here at once, and elsewhere as soon as the database has it."""
        self._unstored[session_id] = (user, expires_at)
        self._own.add(session_id)
        self._on_change()
        await self._store()

    async def run(self) -> None:
        """Keep the list current until cancelled."""
        try:
            await self._follow()
        finally:
            # A read may still be under way, on its thread.
            with self._keeping:
                self._keeps = False
                kept = self._connection
            if kept is not None:
                kept.close()

    async def _follow(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            connect = functools.partial(self._database.connect_async, Role.READER, autocommit=True)
            tasks.create_task(listen(connect, CHANNEL, lambda _: self._news.set(), listening=self._news.set))
            tasks.create_task(self._read_for_ever())

    async def _read_for_ever(self) -> None:
        while not being_cancelled():
            self._news.clear()
            if self._unstored:
                await self._store()
            has_read = await self._read()
            try:
                async with asyncio.timeout(READ_EVERY_S if has_read else READ_AGAIN_S):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _read(self) -> bool:
        started = time.monotonic()
        try:
            rows = await asyncio.to_thread(self._rows)
        except (psycopg.Error, OSError) as error:
            log.warning("ended sessions could not be read", error=str(error).strip() or type(error).__name__)
            return False
        before = self._sessions, self._users
        self._sessions = frozenset(session_id for session_id, _, _ in rows if session_id)
        self._users = {user: ended_at for session_id, user, ended_at in rows if not session_id}
        self._own -= self._sessions
        self._read_at = started
        self.loaded.set()
        if before != (self._sessions, self._users):
            self._on_change()
        return True

    def _rows(self) -> Sequence[tuple[str, str, float]]:
        kept, self._connection = self._connection, None
        if kept is not None:
            try:
                return self._read_over(kept)
            except psycopg.OperationalError:
                pass  # the server may have been restarted since
        return self._read_over(self._database.connect(Role.READER, autocommit=True))

    def _read_over(self, connection: Connection[Any]) -> Sequence[tuple[str, str, float]]:
        """Keeps the connection for the next read."""
        try:
            rows = connection.execute(_QUERIES["ended"]).fetchall()
        except BaseException:
            connection.close()
            raise
        with self._keeping:
            if self._keeps:
                self._connection = connection
        if self._connection is not connection:
            connection.close()
        return rows

    async def _store(self) -> None:
        waiting = dict(self._unstored)
        try:
            await asyncio.to_thread(self._store_ended, waiting)
        except (psycopg.Error, OSError) as error:
            log.error(
                "sessions that ended are not in the database yet", sessions=len(waiting), error=str(error).strip()
            )
            return
        for session_id in waiting:
            self._unstored.pop(session_id, None)
