"""Following a stream: whatever shape answers have, nothing is missed, and what goes wrong is told."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from unittest.mock import Mock

import pytest
import redis

from clientmgr.live.redis_stream import Entry, open_redis
from streaming.live.broadcast.stream_tail import AHEAD, StreamTail, entries_in, follow
from tests.live.serving import until
from tests.live.stream import Stream, seconds_apart

GROUP = "followers"


def request(stream: Stream, *, block_ms: int = 1000) -> tuple[str | int, ...]:
    return ("XREADGROUP", "GROUP", GROUP, "me", "COUNT", 10, "BLOCK", block_ms, "NOACK", "STREAMS", stream.name, ">")


@pytest.fixture
def group(stream: Stream) -> None:
    stream.client.xgroup_create(stream.name, GROUP, id="0", mkstream=True)


class EnoughError(Exception):
    """Ends a test's reading."""


@pytest.mark.anyio
@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("options", ["", "?protocol=2", "?protocol=3"])
async def test_everything_comes_once_and_in_order_by_either_version_of_the_protocol(
    stream: Stream, options: str
) -> None:
    added = stream.add(*seconds_apart(25))
    seen: list[str] = []

    def take(entries: Sequence[Entry]) -> float:
        seen.extend(entry_id.decode() for entry_id, _ in entries)
        assert all(fields[b"device_id"] == b"d1" for _, fields in entries)
        if len(seen) < 50:
            if len(seen) == 25:
                added.extend(stream.add(*seconds_apart(25)))
            return 0.0
        raise EnoughError

    settings = stream.settings.model_copy(update={"redis_url": stream.settings.redis_url + options})
    async with open_redis(settings, blocking=True) as client, asyncio.timeout(20):
        with pytest.raises(EnoughError):
            await follow(client, request(stream), take, at_once=10)
    assert seen == added


@pytest.fixture
def attentive(stream: Stream) -> Iterator[None]:
    """Redis looks ten times a second whether somebody has waited long enough: here it looks more often."""
    before = stream.client.config_get("hz")["hz"]
    stream.client.config_set("hz", 500)
    yield
    stream.client.config_set("hz", before)


@pytest.mark.anyio
@pytest.mark.usefixtures("group", "attentive")
async def test_a_quiet_stream_is_asked_on_and_on(stream: Stream) -> None:
    """Redis has only so many requests in hand."""
    answers = 0

    def take(entries: Sequence[Entry]) -> float:
        nonlocal answers
        answers += 1
        if answers < AHEAD * 3:
            return 0.0
        raise EnoughError

    async with open_redis(stream.settings, blocking=True) as client, asyncio.timeout(20):
        with pytest.raises(EnoughError):
            await follow(client, request(stream, block_ms=1), take, at_once=10)


@pytest.mark.anyio
async def test_what_came_before_an_error_is_handed_on_before_that_is_told() -> None:
    taken: list[bytes] = []

    def take(entries: Sequence[Entry]) -> float:
        taken.extend(entry_id for entry_id, _ in entries)
        return 0.0

    tail = StreamTail(b"", take, 10)
    running = asyncio.create_task(tail.run(Mock(spec=asyncio.Transport)))
    await asyncio.sleep(0)
    tail.data_received(b"*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n-NOGROUP gone\r\n")
    with pytest.raises(redis.ResponseError, match="NOGROUP"):
        await running
    assert taken == [b"1-0"]


@pytest.mark.anyio
async def test_a_group_that_is_missing_is_told(stream: Stream) -> None:
    async with open_redis(stream.settings, blocking=True) as client, asyncio.timeout(20):
        with pytest.raises(redis.ResponseError, match="NOGROUP"):
            await follow(client, request(stream), lambda _: 0.0, at_once=10)


@pytest.mark.anyio
@pytest.mark.usefixtures("group")
async def test_a_connection_that_redis_ends_is_told(stream: Stream) -> None:
    async with open_redis(stream.settings, blocking=True) as client, asyncio.timeout(20):
        following = asyncio.create_task(follow(client, request(stream, block_ms=20_000), lambda _: 0.0, at_once=10))
        await until(lambda: blocked_readers(stream), "somebody waits for records")
        for client_id in await blocked_readers(stream):
            stream.client.client_kill_filter(_id=client_id)
        with pytest.raises(redis.ConnectionError, match="lost"):
            await following


@pytest.mark.anyio
@pytest.mark.usefixtures("group")
async def test_who_stops_following_leaves_no_connection(stream: Stream) -> None:
    async with open_redis(stream.settings, blocking=True) as client, asyncio.timeout(20):
        following = asyncio.create_task(follow(client, request(stream, block_ms=20_000), lambda _: 0.0, at_once=10))
        await until(lambda: blocked_readers(stream), "somebody waits for records")
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following

        async def nobody_waits() -> bool:
            return not await blocked_readers(stream)

        await until(nobody_waits, "the connection is gone")


async def blocked_readers(stream: Stream) -> list[str]:
    return [one["id"] for one in stream.client.client_list() if one["cmd"] == "xreadgroup"]


def test_an_entry_that_was_deleted_meanwhile_has_no_fields() -> None:
    assert entries_in([[b"s", [[b"1-0", None], [b"2-0", [b"a", b"1"]]]]]) == [(b"1-0", {}), (b"2-0", {b"a": b"1"})]
    assert entries_in({b"s": [[b"1-0", [b"a", b"1", b"b", b"2"]]]}) == [(b"1-0", {b"a": b"1", b"b": b"2"})]
    assert entries_in(None) == []
