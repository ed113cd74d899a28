"""Records and snapshots that are larger than they should be, and viewers who are not to suffer from them."""

import asyncio
import json
from typing import Any

import pytest

from clientmgr.live.redis_stream import open_redis
from clientmgr.live.tokens import make_token
from streaming.live.broadcast.last_positions import LastPositions
from streaming.live.telemetry.writer import write_until_stopped
from tests.live.raw_websocket import TEXT, RawClient, frame, request
from tests.live.serving import serving, watching
from tests.live.stream import Stream, record

pytestmark = pytest.mark.anyio

KIB = 1024


def of_size(device: str, size: int) -> dict[str, Any]:
    return record(device, attributes={"note": "x" * size})


async def test_a_record_that_is_too_large_is_counted_and_dropped(stream: Stream) -> None:
    stream.enter("E1", ["d1", "d2"])
    async with serving(stream.settings, instance_id="large") as served, watching(served, "E1") as watcher:
        stream.add(record("d1"), of_size("d1", 1500 * KIB), of_size("d2", 64 * KIB), of_size("d2", 60 * KIB))
        heard = await watcher.positions(2)
        assert [len(position.get("attributes", {}).get("note", "")) for position in heard] == [0, 60 * KIB]
        assert await served.metric("processor_live_broadcast_too_large_total", instance_id="large") == 2
        async with watching(served) as second:
            snapshot = {position["deviceId"]: position for position in await second.subscribe("E1")}
            assert "attributes" not in snapshot["d1"]


async def test_one_that_was_saved_before_is_forgotten(stream: Stream) -> None:
    key = f"{stream.name}:last-positions"
    stream.enter("E1", ["d1", "d2"])
    body = b'{"deviceId":"%b","lat":1.0,"lon":2.0,"ts":1763283600000,"attributes":{"note":"%b"}}'
    saved = {"d1": body % (b"d1", b"x" * 1500 * KIB), "d2": body % (b"d2", b"x" * 60 * KIB)}
    stream.client.hset(key, mapping=saved)
    async with open_redis(stream.settings) as client:
        loaded = LastPositions(stream.name)
        await loaded.load(client)
    assert loaded.bodies(["d1", "d2"]) == [saved["d2"]]
    assert stream.client.hkeys(key) == [b"d2"]
    stream.client.delete(key)


async def test_the_durable_writer_parks_one_with_its_beginning_and_goes_on(stream: Stream) -> None:
    stream.add(of_size("d1", 1500 * KIB), record("d2"))
    written = await write_until_stopped(stream.settings, asyncio.Event(), burst=True)
    assert (written.new, written.rejected) == (1, 1)
    assert stream.pending() == 0
    ((reason, parked),) = stream.query("SELECT reason, fields FROM live.rejected_records")
    assert reason.startswith("record: expected at most 65536 bytes, got 15")
    fields = json.loads(parked)
    assert (fields["device_id"], len(fields["payload"])) == ("d1", 1000)


async def test_many_records_that_come_at_once_are_no_reason_to_close(stream: Stream) -> None:
    """A batch larger than the threshold, for a viewer who has taken everything until then."""
    devices = [f"d{number}" for number in range(40)]
    stream.enter("E1", devices)
    async with serving(stream.settings) as served, watching(served, "E1") as watcher:
        stream.add(*(of_size(device, 60 * KIB) for device in devices))
        await watcher.positions(40)
        # A snapshot of all that would be more than many clients take in one message.
        snapshot = await watcher.subscribe("E1")
        assert 0 < len(snapshot) < 40
        rest = await watcher.positions(40 - len(snapshot))
        assert {position["deviceId"] for position in snapshot + rest} == set(devices)


async def test_snapshots_larger_than_the_threshold_are_no_reason_to_close(stream: Stream) -> None:
    """Several, asked for in one go: each is made when the one before has gone."""
    devices = [f"d{number}" for number in range(20)]
    events = [f"E{number}" for number in range(5)]
    for event in events:
        stream.enter(event, devices)
    async with serving(stream.settings, live_ws_backpressure_threshold_bytes=100_000) as served:
        async with watching(served, "E0") as first:
            for device in devices:
                stream.add(of_size(device, 20 * KIB))
                await first.positions(1)
        token = make_token(served.settings.live_token_key.get_secret_value().encode(), ["*"], 60)
        client = await RawClient.connect(served.port)
        await client.open(request(f"/ws?token={token}"))
        for event in events:
            client.writer.write(frame(TEXT, b'{"type":"subscribe","topic":"event:%b"}' % event.encode()))
        assert [await client.next() for _ in events] == ["subscribed"] * 5
        client.end()
