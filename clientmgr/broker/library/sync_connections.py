"""Two ways between psycopg's worlds: a caller's plain connection for our asynchronous code, and the connection of a
batch for a plain handler. Each is one session and one transaction of PostgreSQL; only who waits for answers differs.
"""

import contextlib
import threading
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Never, Self, TypeVar

import psycopg
from psycopg import AsyncConnection, Connection, Copy, Cursor

from clientmgr.base.errors import PermanentError
from clientmgr.broker.postgres.lease import share_no_longer, share_session

T = TypeVar("T")


class LentConnection(Connection[Any]):
    """The session of a batch, lent to a handler's thread until it is taken back. The transaction stays the broker's."""

    def __init__(self, lender: AsyncConnection[Any]) -> None:
        self._lender = lender
        self._lenders_handlers = (lender.pgconn.notice_handler, lender.pgconn.notify_handler)
        super().__init__(lender.pgconn)
        # One session has one set of prepared statements: two managers would give two of them one name.
        self._prepared = lender._prepared
        self._in_use = threading.Lock()
        self._is_lent = True
        share_session(lender, self._in_use)

    def wait(self, *arguments: Any, **options: Any) -> Any:
        """Everything that talks to the server comes through here."""
        with self._in_use:
            if not self._is_lent:
                raise psycopg.OperationalError(
                    "the batch is no longer this handler's: it has returned, or its time was over"
                )
            return super().wait(*arguments, **options)

    async def sign_of_life_is_given(self) -> None:
        """Otherwise it would pass for a statement of the handler's."""
        async with self._lender.lock:
            pass

    def try_to_take_back(self) -> bool:
        """False: a statement is under way. True: from here on the handler can send none."""
        self._is_lent = False
        if not self._in_use.acquire(blocking=False):
            return False
        self.pgconn.notice_handler, self.pgconn.notify_handler = self._lenders_handlers
        self._in_use.release()
        share_no_longer(self._lender)
        return True

    def commit(self) -> None:
        self._refuse("commit")

    def rollback(self) -> None:
        self._refuse("rollback")

    def close(self) -> None:
        self._refuse("close")

    @staticmethod
    def _refuse(what: str) -> Never:
        raise PermanentError(
            f"{what}: the transaction is the batch's, and ends with it; undo a part with connection.transaction()"
        )

    def __del__(self, *_: object) -> None:
        """psycopg would complain that it was not closed. It is not ours to close."""


class AsIfAsync:
    """A caller's plain connection, for code that awaits. Nothing of it ever really waits: see `run_through`."""

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def execute(self, *arguments: Any, **options: Any) -> "_Cursor":
        return _Cursor(self._connection.execute(*arguments, **options))

    def cursor(self, *arguments: Any, **options: Any) -> "_Cursor":
        return _Cursor(self._connection.cursor(*arguments, **options))

    @contextlib.asynccontextmanager
    async def transaction(self, *arguments: Any, **options: Any) -> AsyncIterator[psycopg.Transaction]:
        with self._connection.transaction(*arguments, **options) as transaction:
            yield transaction


class _Cursor:
    def __init__(self, cursor: Cursor[Any]) -> None:
        self._cursor = cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._cursor.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return next(self._cursor)
        except StopIteration:
            raise StopAsyncIteration from None

    async def execute(self, *arguments: Any, **options: Any) -> Self:
        self._cursor.execute(*arguments, **options)
        return self

    async def fetchone(self) -> Any:
        return self._cursor.fetchone()

    async def fetchall(self) -> list[Any]:
        return self._cursor.fetchall()

    @contextlib.asynccontextmanager
    async def copy(self, *arguments: Any, **options: Any) -> AsyncIterator["_Copy"]:
        with self._cursor.copy(*arguments, **options) as copy:
            yield _Copy(copy)


class _Copy:
    def __init__(self, copy: Copy) -> None:
        self._copy = copy

    async def write(self, data: bytes) -> None:
        self._copy.write(data)


def run_through(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that has nothing to wait for, in the caller's thread and without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("publishing with a plain connection tried to wait for an event loop")
