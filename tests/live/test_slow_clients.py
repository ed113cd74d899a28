"""Clients that do not keep up: the latest of each device for those who lag, 1008 for those who stall. Others go on."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from clientmgr.base.portions import portions
from clientmgr.live.tokens import make_token
from streaming.live.broadcast import connection
from streaming.live.broadcast.sending import outbox
from tests.live.serving import Served, Watcher, serving, until, watching
from tests.live.stalling import StallingClient
from tests.live.stream import Record, Stream, record

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("both_ways_to_send")]

PADDING = {"note": "x" * 900}
"""Frames of about a kilobyte fill buffers with few of them."""


@asynccontextmanager
async def stalling(served: Served, event: str, *, receive_buffer: int = 4096) -> AsyncIterator[StallingClient]:
    token = make_token(served.settings.live_token_key.get_secret_value().encode(), ["*"], 60)
    client = StallingClient(served, token, receive_buffer=receive_buffer)
    try:
        await client.subscribe(event)
        yield client
    finally:
        client.close()


def padded(device: str, number: int) -> Record:
    return record(device, latitude=0.0, speed=float(number), attributes=PADDING)


async def hear_of_all(stream: Stream, devices: list[str], watcher: Watcher) -> None:
    """A position of each. Bit by bit: all at once would be too much for anybody who shares the server's event loop."""
    for some in portions(devices, 30):
        stream.add(*(padded(device, 0) for device in some))
        await watcher.positions(30)


async def test_a_client_whose_unsent_bytes_pass_the_threshold_is_closed_with_1008_and_others_are_not(
    stream: Stream,
) -> None:
    devices = [f"d{number}" for number in range(600)]
    stream.enter("E1", devices)
    settings = stream.settings.model_copy(
        update={"instance_id": "threshold", "live_ws_backpressure_threshold_bytes": 200_000}
    )
    async with serving(settings) as served, watching(served, "E1") as healthy, stalling(served, "E1") as slow:
        await hear_of_all(stream, devices, healthy)

        async def dropped() -> float:
            return await served.metric(
                "processor_live_broadcast_dropped_total", instance_id="threshold", reason="threshold"
            )

        await until(dropped, "the slow one is dropped", within_s=5)
        # Nothing waits any more but what the kernel has: whoever reads on finds the close frame behind it.
        assert await slow.end() in (1008, None)
        assert await served.metric("processor_live_connections") == 1


async def test_a_client_that_reads_on_in_time_finds_the_close_code(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ABORT_AFTER_S", 30.0)  # a busy machine may take more than a second to read on
    devices = [f"d{number}" for number in range(600)]
    stream.enter("E1", devices)
    settings = stream.settings.model_copy(
        update={"instance_id": "closing", "live_ws_backpressure_threshold_bytes": 100_000}
    )
    async with serving(settings) as served, stalling(served, "E1", receive_buffer=65_536) as slow:

        async def dropped() -> float:
            return await served.metric(
                "processor_live_broadcast_dropped_total", instance_id="closing", reason="threshold"
            )

        stream.add(*(padded(device, 0) for device in devices))
        await until(dropped, "it is dropped")
        async with asyncio.timeout(20):
            assert await slow.end() == 1008


async def test_a_client_that_takes_nothing_is_closed_within_the_stall_timeout(stream: Stream) -> None:
    stream.enter("E1", ["d1"])
    settings = stream.settings.model_copy(
        update={"instance_id": "stalled", "live_ws_stall_timeout_ms": 500, "live_broadcast_batch_size": 10}
    )
    async with serving(settings) as served, watching(served, "E1") as healthy, stalling(served, "E1"):
        # Of one device, so that what waits never grows: the stall alone is the reason.
        for _ in range(30):
            stream.add(*(padded("d1", number) for number in range(20)))
            await healthy.positions(20)

        async def dropped() -> float:
            return await served.metric(
                "processor_live_broadcast_dropped_total", instance_id="stalled", reason="stalled"
            )

        await until(dropped, "the stalled one is dropped", within_s=5)


async def test_a_client_that_takes_nothing_of_an_event_that_fell_silent_is_closed_too(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What it left untaken is little: the transport is not full, and nothing comes that would show it.
    monkeypatch.setattr(outbox, "HIGH_WATER", 10_000_000)
    stream.enter("E1", ["d1"])
    settings = stream.settings.model_copy(
        update={
            "instance_id": "silent",
            "live_ws_stall_timeout_ms": 500,
            "live_ws_backpressure_threshold_bytes": 10_000_000,
        }
    )
    async with serving(settings) as served, watching(served, "E1") as healthy, stalling(served, "E1"):
        stream.add(*(padded("d1", number) for number in range(500)))
        await healthy.positions(500)

        async def dropped() -> float:
            return await served.metric("processor_live_broadcast_dropped_total", instance_id="silent", reason="stalled")

        await until(dropped, "the stalled one is dropped", within_s=10)
        assert await served.metric("processor_live_connections") == 1


async def test_a_threshold_below_what_a_transport_holds_counts_too(stream: Stream) -> None:
    stream.enter("E1", ["d1"])
    settings = stream.settings.model_copy(
        update={
            "instance_id": "small",
            "live_ws_stall_timeout_ms": 60_000,
            "live_ws_backpressure_threshold_bytes": 2048,
            "live_broadcast_batch_size": 1,
        }
    )
    async with serving(settings) as served, watching(served, "E1") as healthy, stalling(served, "E1"):

        async def dropped() -> float:
            stream.add(padded("d1", 0))
            await healthy.positions(1)
            return await served.metric(
                "processor_live_broadcast_dropped_total", instance_id="small", reason="threshold"
            )

        await until(dropped, "it is dropped before 32 KiB wait")


async def test_a_slow_client_gets_the_latest_of_each_device_and_every_device(stream: Stream) -> None:
    devices = [f"d{number}" for number in range(50)]
    stream.enter("E1", devices)
    rounds = 40
    settings = stream.settings.model_copy(update={"instance_id": "conflating", "live_ws_stall_timeout_ms": 60_000})
    async with serving(settings) as served, watching(served, "E1") as healthy, stalling(served, "E1") as slow:
        for number in range(1, rounds + 1):
            stream.add(*(padded(device, number) for device in devices))
            await healthy.positions(50)
        latest: dict[str, float] = {}
        frames = 0
        async with asyncio.timeout(20):
            while len(latest) < 50 or set(latest.values()) != {float(rounds)}:
                _, content = await slow.frame()
                heard = json.loads(content)
                assert heard["speed"] >= latest.get(heard["deviceId"], 0), "back in time"
                latest[heard["deviceId"]] = heard["speed"]
                frames += 1
        assert frames < 50 * rounds, "nothing was conflated"
        conflated = await served.metric("processor_live_broadcast_conflated_total", instance_id="conflating")
        assert frames + conflated == 50 * rounds

        # It has caught up: from here on it misses nothing.
        stream.add(*(padded("d1", rounds + number) for number in range(1, 31)))
        speeds = [json.loads((await slow.frame())[1])["speed"] for _ in range(30)]
        assert speeds == [rounds + number for number in range(1, 31)]


async def test_a_fix_that_comes_late_does_not_replace_a_newer_one_that_waits(stream: Stream) -> None:
    others = [f"d{number}" for number in range(100)]
    stream.enter("E1", [*others, "late"])
    now = datetime.now(UTC)
    settings = stream.settings.model_copy(update={"live_ws_stall_timeout_ms": 60_000})
    async with serving(settings) as served, watching(served, "E1") as healthy, stalling(served, "E1") as slow:
        for number in range(5):
            stream.add(*(padded(device, number) for device in others))
            await healthy.positions(100)
        stream.add(record("late", at=now, speed=2.0))
        stream.add(record("late", at=now - timedelta(hours=1), speed=1.0))
        assert [frame["speed"] for frame in await healthy.positions(2)] == [2.0, 1.0]
        async with asyncio.timeout(20):
            while (heard := json.loads((await slow.frame())[1]))["deviceId"] != "late":
                pass
    assert heard["speed"] == 2.0


async def test_a_snapshot_larger_than_the_threshold_is_no_reason_to_close(stream: Stream) -> None:
    devices = [f"d{number}" for number in range(300)]
    stream.enter("E1", devices)
    settings = stream.settings.model_copy(update={"live_ws_backpressure_threshold_bytes": 50_000})
    async with serving(settings) as served, watching(served, "E1") as first:
        await hear_of_all(stream, devices, first)
        async with watching(served) as second:
            assert len(await second.subscribe("E1")) == 300
            stream.add(padded("d1", 1))
            await second.positions(1)


async def test_who_asks_and_asks_and_never_reads_is_closed(stream: Stream) -> None:
    devices = [f"d{number}" for number in range(300)]
    stream.enter("E1", devices)
    settings = stream.settings.model_copy(update={"instance_id": "asking", "live_ws_stall_timeout_ms": 500})
    async with serving(settings) as served, watching(served, "E1") as first:
        await hear_of_all(stream, devices, first)
        async with stalling(served, "E1") as asking:

            async def dropped() -> float:
                await asking.ask_again("E1")
                return await served.metric("processor_live_broadcast_dropped_total", instance_id="asking")

            await until(dropped, "it is dropped", within_s=10)


async def test_others_are_not_delayed_by_those_who_stall(stream: Stream) -> None:
    devices = [f"d{number}" for number in range(100)]
    stream.enter("E1", devices)
    settings = stream.settings.model_copy(update={"live_ws_stall_timeout_ms": 60_000})
    async with serving(settings) as served, watching(served, "E1") as healthy, AsyncExitStack() as stalled:
        for _ in range(3):
            await stalled.enter_async_context(stalling(served, "E1"))
        for _ in range(5):
            stream.add(*(padded(device, 0) for device in devices))
            await healthy.positions(100)
        slowest = 0.0
        for number in range(20):
            started = time.perf_counter()
            stream.add(padded("d1", number))
            await healthy.positions(1)
            slowest = max(slowest, time.perf_counter() - started)
    # A stalled client that delayed others would do so until its timeout, a minute.
    assert slowest < 5
