"""What a broadcast instance makes of lost groups, a Redis that restarts, its own restarts, and its dead neighbours."""

import asyncio
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from clientmgr.live.redis_stream import open_redis
from clientmgr.local.embedded.redis import EmbeddedRedis
from clientmgr.local.embedded.server import free_port
from streaming.live.broadcast.last_positions import LastPositions
from streaming.live.broadcast.reader import StreamReader
from streaming.live.telemetry.writer import write_until_stopped
from tests.live.serving import Served, Watcher, serving, until, watching
from tests.live.stream import Stream, at_the_newest, own_stream, record, seconds_apart
from tests.streaming.processes import worker
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture
def crashing_redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    """A Redis of the test's own."""
    server = EmbeddedRedis(tmp_path / "crashing-redis")
    server.start()
    yield server
    server.stop()


async def hears_again(stream: Stream, watcher: Watcher) -> None:
    """Positions arrive once more. Those that were sent in the outage may be lost: they are not live any more."""

    async def one_more() -> bool:
        stream.add(record("d1"))
        try:
            async with asyncio.timeout(0.5):
                await watcher.socket.recv()
        except TimeoutError:
            return False
        return True

    await until(one_more, "positions come again")


async def test_a_group_that_somebody_destroyed_is_made_again(stream: Stream) -> None:
    stream.enter("E1", ["d1"])
    async with serving(stream.settings, instance_id="me") as served, watching(served, "E1") as watcher:
        stream.add(record("d1"))
        await watcher.positions(1)
        stream.client.xgroup_destroy(stream.name, "live-broadcast-me")
        await hears_again(stream, watcher)


async def test_a_stream_that_was_deleted_is_followed_anew(stream: Stream) -> None:
    stream.enter("E1", ["d1"])
    async with serving(stream.settings) as served, watching(served, "E1") as watcher:
        stream.client.delete(stream.name)
        await hears_again(stream, watcher)


async def test_records_trimmed_away_before_they_were_read_hold_up_nothing(stream: Stream) -> None:
    stream.enter("E1", ["d1"])
    async with serving(stream.settings) as served, watching(served, "E1") as watcher:
        for _ in range(20):
            stream.add(*seconds_apart(100))
            stream.client.xtrim(stream.name, maxlen=1, approximate=False)
        stream.add(record("d1", latitude=7.0))
        async with asyncio.timeout(10):
            while (await watcher.hear())["lat"] != 7.0:
                pass


async def test_a_redis_that_crashes_and_comes_back_is_read_again(stream: Stream, crashing_redis: EmbeddedRedis) -> None:
    stream.enter("E1", ["d1"])
    own = Stream(own_stream(stream.settings.model_copy(update={"redis_url": crashing_redis.url})), stream.database)
    async with serving(own.settings) as served, watching(served, "E1") as watcher:
        own.add(record("d1", latitude=1.0))
        assert (await watcher.positions(1))[0]["lat"] == 1.0
        crashing_redis.crash()
        await asyncio.to_thread(crashing_redis.restart)
        await hears_again(own, watcher)
        assert (await served.get("/healthz"))[:2] == (200, "ok")
        async with watching(served) as newcomer:
            assert len(await newcomer.subscribe("E1")) == 1


async def test_who_restarts_under_its_name_begins_at_the_newest_record(stream: Stream) -> None:
    stream.enter("E1", ["d1"])
    stream.add(record("d1", latitude=1.0))
    # What a killed instance of this name leaves behind: its group, at an old place.
    stream.client.xgroup_create(stream.name, "live-broadcast-returning", id="0")
    async with serving(stream.settings, instance_id="returning") as served, watching(served, "E1") as watcher:
        stream.add(record("d1", latitude=2.0))
        assert [frame["lat"] for frame in await watcher.positions(1)] == [2.0]
        # The old one was not even read: with nobody connected yet it would have gone unnoticed.
        assert await served.metric("processor_live_broadcast_records_total", instance_id="returning") == 1


async def test_a_clean_stop_removes_the_group_and_no_other(stream: Stream) -> None:
    async with serving(stream.settings, instance_id="other"):
        async with serving(stream.settings, instance_id="me"):
            assert stream.groups() == {"live-broadcast-me", "live-broadcast-other"}
        assert stream.groups() == {"live-broadcast-other"}


async def test_groups_of_dead_instances_are_removed_and_those_of_the_living_are_not(stream: Stream) -> None:
    for group in ("live-broadcast-dead", "live-broadcast-joining", "processor", "live-broadcasters"):
        stream.client.xgroup_create(stream.name, group, id="0", mkstream=True)
        if group != "live-broadcast-joining":
            stream.client.xgroup_createconsumer(stream.name, group, "c")
    async with serving(stream.settings, instance_id="alive", live_broadcast_batch_block_ms=50):
        reader = StreamReader(
            stream.settings, "me", LastPositions(stream.name), lambda _: None, at_the_newest, reap_after_ms=400
        )
        async with open_redis(stream.settings) as client:

            async def dead_is_gone() -> bool:
                await reader.reap(client)
                return "live-broadcast-dead" not in stream.groups()

            await until(dead_is_gone, "the dead group is gone")
        assert stream.groups() == {
            "live-broadcast-alive",
            "live-broadcast-joining",
            "live-broadcasters",
            "processor",
        }


async def test_a_server_that_stops_says_that_it_goes_away(stream: Stream) -> None:
    async with serving(stream.settings) as served:
        socket = await connect(f"{served.url}?token=x", proxy=None)
        watcher = Watcher(socket)
        assert (await watcher.closed())[0] == 4401
    async with serving(stream.settings, live_auth="off") as served:
        socket = await connect(served.url, proxy=None)
    with pytest.raises(ConnectionClosed) as caught:
        await socket.recv()
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1001


async def test_both_in_one_process_stop_in_order_and_lose_nothing(stream: Stream, tmp_path: Path) -> None:
    stream.enter("E1", ["d1"])
    settings = stream.settings.model_copy(update={"live_ws_port": free_port(), "instance_id": "both"})
    with worker(settings, tmp_path, "live") as process:
        await asyncio.to_thread(eventually, lambda: process.log.count("daemon started") == 2, "both have started")
        async with watching(Served(settings, settings.live_ws_port), "E1") as watcher:
            stream.add(*seconds_apart(300))
            await watcher.positions(300)
            process.send(signal.SIGTERM)
            assert (await watcher.closed())[0] == 1001
        assert await asyncio.to_thread(process.wait) == 0
        stopped = re.findall(r'"message": "daemon stopped".*?"daemon": "([\w-]+)"', process.log) or re.findall(
            r'"daemon": "([\w-]+)"[^\n]*"message": "daemon stopped"', process.log
        )
        assert stopped == ["broadcast", "telemetry-writer"], process.log
    assert stream.pending() == 0
    # What the watcher had before the writer was told to stop is in the stream, for the next one.
    await write_until_stopped(stream.settings, asyncio.Event(), burst=True)
    assert stream.count("positions") == 300
    assert stream.groups() == {"processor"}
    assert stream.pending() == 0
