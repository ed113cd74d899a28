"""Reads the next entries of a stream over and over, directly from the socket.

redis-py opens the connection and takes care of address, TLS and sign-in. But a read through all its layers takes four
times the processor time of this module, more than everything else that we do with a record. So once the connection is
open, one request, packed once, goes straight to the transport, and hiredis parses the answers.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import hiredis
import redis

from clientmgr.live.redis_stream import Entry, RedisClient

AHEAD = 32
"""Requests that wait for us in Redis. When it has answered one, it starts the next by itself. A new request after each
answer would cost a round trip for every record, to a Redis that has gone to sleep by then.
"""

Take = Callable[[Sequence[Entry]], float]
"""Called with new entries, or with none if none came in time. Returns for how many seconds to collect more."""


async def follow(client: RedisClient, request: Sequence[str | int], take: Take, *, at_once: int) -> None:
    """Send `request`, an XREADGROUP of one stream, again and again until it fails or is cancelled.

    Hands on at most about `at_once` entries at a time. Other tasks get a turn before the rest.
    """
    connection = cast(Any, client.connection_pool).make_connection()
    await connection.connect()
    transport: asyncio.Transport = connection._writer.transport
    tail = StreamTail(b"".join(connection.pack_command(*request)), take, at_once)
    transport.set_protocol(tail)
    try:
        await tail.run(transport)
    finally:
        transport.abort()
        await connection.disconnect(nowait=True)


class StreamTail(asyncio.Protocol):
    """The protocol of an open connection."""

    def __init__(self, request: bytes, take: Take, at_once: int) -> None:
        self._request = request
        self._take = take
        self._at_once = at_once
        self._reader = hiredis.Reader(protocolError=redis.InvalidResponse, replyError=redis.ResponseError)
        self._unanswered = 0
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport
        self._pause: asyncio.TimerHandle | None = None
        self._next: asyncio.Handle | None = None

    async def run(self, transport: asyncio.Transport) -> None:
        """Raises what went wrong."""
        self._transport = transport
        self._ask_ahead()
        try:
            await self._failed
        finally:
            for planned in (self._pause, self._next):
                if planned is not None:
                    planned.cancel()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        if self._next is None:
            self._work()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(redis.ConnectionError(f"the connection is lost: {error or 'closed by the server'}"))

    def _work(self) -> None:
        self._next = None
        if self._failed.done():
            return
        try:
            answered, entries, refusal = self._whole_answers()
            if answered:
                self._unanswered -= answered
                if self._unanswered <= AHEAD // 2:
                    self._ask_ahead()
                self._collect_for(self._take(entries))
            if refusal is not None:
                raise refusal
            if len(entries) >= self._at_once:
                self._next = asyncio.get_running_loop().call_soon(self._work)
        except Exception as error:  # noqa: BLE001  # `run` raises it
            self._fail(error)

    def _whole_answers(self) -> tuple[int, list[Entry], Exception | None]:
        """The complete answers so far, up to a full batch: their number, their entries, and the error after them."""
        answered = 0
        entries: list[Entry] = []
        while len(entries) < self._at_once and (answer := self._reader.gets()) is not False:
            if isinstance(answer, Exception):
                return answered, entries, answer
            if not isinstance(answer, hiredis.PushNotification):
                answered += 1
                entries += entries_in(answer)
        return answered, entries, None

    def _ask_ahead(self) -> None:
        self._transport.write(self._request * (AHEAD - self._unanswered))
        self._unanswered = AHEAD

    def _collect_for(self, seconds: float) -> None:
        if seconds > 0:
            self._transport.pause_reading()
            self._pause = asyncio.get_running_loop().call_later(seconds, self._transport.resume_reading)

    def _fail(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)


def entries_in(answer: Any) -> list[Entry]:
    """The entries in an answer about one stream, in the shape of either version of the protocol."""
    if not answer:
        return []
    ((_, entries),) = answer.items() if isinstance(answer, dict) else answer
    # No fields: the entry was deleted in between.
    return [
        (entry_id, dict(zip(fields[::2], fields[1::2], strict=True)) if fields else {}) for entry_id, fields in entries
    ]
