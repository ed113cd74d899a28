"""Connections to one HTTP/1.1 server that stay open: one request at a time on each, and no more than a number of them.

A connection that is cancelled, late or garbled is closed: no answer can ever reach the wrong request.
"""

import asyncio
import time
from dataclasses import dataclass
from ssl import SSLContext
from typing import cast

from clientmgr.devices.legacy.http_answers import Answer, AnswerReader, GarbledAnswerError

LONGEST_IDLE_S = 45.0
"""Servers and routers forget connections that are idle for a minute or more, not all of them with a word."""


class ClosedByServerError(ConnectionError):
    """It closed the connection before it began to answer."""


@dataclass(frozen=True)
class Address:
    host: str
    port: int
    tls: SSLContext | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Connections:
    """A pool: `ask` takes an idle connection or opens one, and waits while there are `most` in use."""

    def __init__(self, address: Address, *, most: int, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._places = asyncio.Semaphore(most)
        self._idle: list[Connection] = []
        self._is_closed = False

    async def ask(self, request: bytes) -> Answer:
        """Send a request that may be repeated, and return its answer. Raises ConnectionError and TimeoutError."""
        async with self._places:
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await self._ask(request)
            except TimeoutError:
                raise TimeoutError(f"{self._address} did not answer within {self._timeout_s:g} s") from None

    async def _ask(self, request: bytes) -> Answer:
        if (connection := self._idle_one()) is not None:
            try:
                return await self._ask_on(connection, request)
            except ClosedByServerError:
                pass  # it gave up an idle connection just when we took it: that says nothing about the request
        return await self._ask_on(await self._open(), request)

    async def _ask_on(self, connection: "Connection", request: bytes) -> Answer:
        try:
            answer = await connection.ask(request)
        except BaseException:
            connection.abort()
            raise
        if answer.keeps_open and not self._is_closed:
            self._idle.append(connection)
        else:
            connection.abort()
        return answer

    def _idle_one(self) -> "Connection | None":
        """The one that was used last: the others may be too many, and get old."""
        oldest = time.monotonic() - LONGEST_IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.used_at > oldest:
                return connection
            connection.abort()
        return None

    async def _open(self) -> "Connection":
        loop = asyncio.get_running_loop()
        address = self._address
        try:
            _, connection = await loop.create_connection(Connection, address.host, address.port, ssl=address.tls)
        except OSError as error:
            # One kind for all of them: a host without a name is as far away as one that refuses.
            raise ConnectionError(f"{address} can't be reached: {error}") from error
        return connection

    def close(self) -> None:
        self._is_closed = True
        for connection in self._idle:
            connection.abort()
        self._idle.clear()


class Connection(asyncio.Protocol):
    """One connection, with one request under way at most."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reader = AnswerReader()
        self._answer: asyncio.Future[Answer] | None = None
        self.used_at = time.monotonic()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def ask(self, request: bytes) -> asyncio.Future[Answer]:
        self._reader = AnswerReader()
        self._answer = asyncio.get_running_loop().create_future()
        if self._transport is None or self._transport.is_closing():
            self._answer.set_exception(ClosedByServerError("the connection is closed"))
        else:
            self._transport.write(request)
        return self._answer

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.abort()  # nobody asked for it
            return
        try:
            answer = self._reader.feed(data)
        except GarbledAnswerError as error:
            self._fail(error)
            return
        if answer is not None:
            self.used_at = time.monotonic()
            self._answer.set_result(answer)

    def eof_received(self) -> None:
        self._ended(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended(exc)
        self._transport = None

    def _ended(self, why: Exception | None) -> None:
        if self._answer is None or self._answer.done():
            self.abort()
        elif not self._reader.has_begun:
            self._fail(ClosedByServerError(f"closed before it answered{f': {why}' if why else ''}"))
        else:
            try:
                self._answer.set_result(self._reader.end())
            except GarbledAnswerError as error:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self.abort()
