"""The reader by itself: how it takes batches from the stream, and whose groups it removes."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from clientmgr.live.redis_stream import open_redis
from streaming.live.broadcast import reader as reader_module
from streaming.live.broadcast.last_positions import LastPositions
from streaming.live.broadcast.reader import StreamReader
from tests.live.serving import until
from tests.live.stream import Stream, at_the_newest, record, seconds_apart

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def reading(stream: Stream, **changes: object) -> AsyncIterator[list[int]]:
    """A running reader; yields the sizes of the batches that it hands on, as they come."""
    sizes: list[int] = []
    settings = stream.settings.model_copy(update=changes)
    reader = StreamReader(
        settings, "me", LastPositions(stream.name), lambda entries: sizes.append(len(entries)), at_the_newest
    )
    task = asyncio.create_task(reader.run())
    try:
        await reader.reading.wait()
        yield sizes
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until_read(sizes: list[int], count: int, *, within_s: float = 20.0) -> None:
    async def all_read() -> bool:
        return sum(sizes) == count

    await until(all_read, f"{count} records are read", within_s=within_s)


async def test_a_tick_collects_what_comes_within_it(stream: Stream) -> None:
    async with reading(stream, live_broadcast_tick_ms=1000) as sizes:
        stream.add(record())
        await until_read(sizes, 1)
        for fields in seconds_apart(5):
            stream.add(fields)
        await until_read(sizes, 6)
    assert sizes == [1, 5]


async def test_a_tick_does_not_slow_down_a_reader_that_is_behind(stream: Stream) -> None:
    async with reading(stream, live_broadcast_tick_ms=2000, live_broadcast_batch_size=10) as sizes:
        stream.add(*seconds_apart(200))
        # A tick for each batch would be 40 seconds.
        await until_read(sizes, 200, within_s=15)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has such a limit")
@pytest.mark.parametrize("blocking", [True, False])
async def test_a_redis_that_is_silently_gone_is_given_up_within_half_a_minute(stream: Stream, blocking: bool) -> None:
    async with open_redis(stream.settings, blocking=blocking) as client:
        pool: Any = client.connection_pool
        connection = await pool.get_connection()
        own = connection._writer.get_extra_info("socket")
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        waits_s = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        waits_s += 3 * own.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        assert waits_s == 30
        await pool.release(connection)


async def test_a_reader_does_not_remove_its_own_group(stream: Stream) -> None:
    reader = StreamReader(
        stream.settings, "me", LastPositions(stream.name), lambda _: None, at_the_newest, reap_after_ms=0
    )
    for group in (reader.group, "live-broadcast-dead"):
        stream.client.xgroup_create(stream.name, group, id="0", mkstream=True)
        stream.client.xgroup_createconsumer(stream.name, group, "c")
    async with open_redis(stream.settings) as client:
        await reader.reap(client)
    assert stream.groups() == {reader.group}


async def test_a_reader_that_may_not_read_is_not_healthy(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can make its group, over and over; that is no reading."""
    monkeypatch.setattr(reader_module, "SILENT_AFTER_S", 0.2)
    stream.client.acl_setuser(
        "unread", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-xreadgroup"], reset=True
    )
    url = stream.settings.redis_url.replace("redis://", "redis://unread:any@")
    settings = stream.settings.model_copy(update={"redis_url": url, "live_broadcast_batch_block_ms": 10})
    reader = StreamReader(settings, "me", LastPositions(stream.name), lambda _: None, at_the_newest)
    task = asyncio.create_task(reader.run())
    try:
        await reader.reading.wait()

        async def has_a_problem() -> bool:
            return "nothing could be read" in reader.problem()

        await until(has_a_problem, "it is told")
        await asyncio.wait([task], timeout=0.5)
        assert reader.problem(), "forgotten by the next attempt"
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        stream.client.acl_deluser("unread")
