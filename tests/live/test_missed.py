"""What came while a client, or every instance, was away: snapshots are the newest, and who asks gets what it missed."""

import asyncio
from typing import Any

import pytest

from streaming.live.broadcast.history import OVERHEAD, History
from streaming.live.telemetry.writer import write_until_stopped
from tests.live.serving import Watcher, serving, watching
from tests.live.stream import Stream, record, seconds_apart

pytestmark = pytest.mark.anyio


async def subscribe_since(watcher: Watcher, since_ms: int) -> dict[str, Any]:
    return await watcher.ask({"type": "subscribe", "topic": "event:E1", "since": since_ms})


def arrival_ms(entry_id: str) -> int:
    return int(entry_id.partition("-")[0])


async def test_who_comes_back_gets_what_arrived_since_also_from_an_instance_that_has_just_started(
    stream: Stream,
) -> None:
    stream.enter("E1", ["d1", "d2"])
    (first, *_) = stream.add(record("d1", latitude=1.0), record("other"), record("d1", latitude=2.0))
    async with serving(stream.settings) as served, watching(served) as watcher:
        at_start = await subscribe_since(watcher, arrival_ms(first))
        (last,) = stream.add(record("d2", latitude=3.0))
        await watcher.positions(1)
        async with watching(served) as returning:
            later = await subscribe_since(returning, arrival_ms(first))
            nothing = await subscribe_since(returning, arrival_ms(last) + 1)
    assert [position["lat"] for position in at_start["missed"]] == [1.0, 2.0]
    assert [position["lat"] for position in later["missed"]] == [1.0, 2.0, 3.0]
    assert {position["topic"] for position in later["missed"]} == {"event:E1"}
    assert (nothing["missed"], nothing["complete"], later["complete"]) == ([], True, True)


async def test_what_the_history_no_longer_holds_is_said_to_be_incomplete(stream: Stream) -> None:
    stream.enter("E1", ["d1"])
    (first, *_) = stream.add(*seconds_apart(20))
    async with (
        serving(stream.settings, live_history_bytes=5 * (OVERHEAD + 120)) as served,
        watching(served) as watcher,
    ):
        answer = await subscribe_since(watcher, arrival_ms(first) - 1)
        assert 0 < len(answer["missed"]) < 20
        assert answer["complete"] is False
        assert "missed" not in await watcher.ask({"type": "subscribe", "topic": "event:E1"})
        refused = await watcher.ask({"type": "subscribe", "topic": "event:E1", "since": -1})
        assert (refused["code"], "since" in refused["message"]) == ("invalid_message", True)


def test_the_history_is_bounded_by_age_and_size_and_knows_from_when_on_it_is_whole() -> None:
    history = History(keep_s=1.0, max_bytes=10_000)
    assert not history.covers(5000)
    history.begin(1000)
    history.add("d1", 1000, b"a")
    history.add("d2", 1500, b"b")
    history.add("d1", 2000, b"c")
    assert history.covers(1000)
    assert history.since(["d1", "d2", "d3"], 1500) == [b"b", b"c"]
    history.add("d1", 2001, b"d")
    assert history.since(["d1"], 0) == [b"c", b"d"]
    assert (history.covers(1000), history.covers(1001)) == (False, True)
    history.add("d3", 2002, bytes(9_900))
    assert history.since(["d1", "d2", "d3"], 0) == []
    assert history.covers(2003)


async def test_a_snapshot_after_a_restart_has_what_came_while_nobody_read(stream: Stream) -> None:
    stream.enter("E1", ["d1"])
    async with serving(stream.settings) as served, watching(served, "E1") as watcher:
        stream.add(record("d1", latitude=1.0))
        await watcher.positions(1)
    stream.add(*(record("d1", latitude=2.0 + number / 1000) for number in range(1500)))
    async with serving(stream.settings, live_history_s=0.0) as served, watching(served) as watcher:
        assert [position["lat"] for position in await watcher.subscribe("E1")] == [3.499]


async def test_what_the_stream_no_longer_has_comes_from_postgresql(stream: Stream) -> None:
    stream.enter("E1", ["d1", "d2"])
    async with serving(stream.settings) as served, watching(served, "E1") as watcher:
        stream.add(record("d1", latitude=1.0))
        await watcher.positions(1)
    stream.add(record("d1", latitude=2.0, attributes={"a": 1}), record("d2", latitude=5.0, attributes={}))
    await write_until_stopped(stream.settings, asyncio.Event(), burst=True)
    stream.client.xtrim(stream.name, maxlen=0, approximate=False)
    async with serving(stream.settings) as served, watching(served) as watcher:
        found = {position["deviceId"]: position for position in await watcher.subscribe("E1")}
        assert (found["d1"]["lat"], found["d1"]["attributes"]) == (2.0, {"a": 1})
        assert found["d2"]["lat"] == 5.0
        assert "attributes" not in found["d2"]
        # From here on positions are live again.
        stream.add(record("d1", latitude=3.0))
        assert [position["lat"] for position in await watcher.positions(1)] == [3.0]
