"""From the stream to those who watch: who gets what, as what, and what is counted."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest

from clientmgr.base.database import Database, Role
from clientmgr.live.redis_stream import open_redis
from streaming.live.broadcast import participants as participants_module
from streaming.live.broadcast import server
from streaming.live.broadcast.last_positions import LastPositions
from streaming.live.broadcast.participants import Participants
from streaming.live.broadcast.sending import io_uring
from streaming.live.telemetry.writer import write_until_stopped
from tests.live.serving import Watcher, serving, until, watching
from tests.live.stream import Record, Stream, record, seconds_apart
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("both_ways_to_send")]


async def test_everybody_who_watches_an_event_gets_each_position_once(stream: Stream) -> None:
    stream.enter("E1", ["d1"])
    at = datetime.now(UTC) - timedelta(hours=2)
    async with (
        serving(stream.settings, instance_id="one") as served,
        watching(served, "E1") as first,
        watching(served, "E1") as second,
        watching(served, "E2") as elsewhere,
    ):
        stream.add(record("d1", at=at), record("d1", at=at + timedelta(seconds=1), speed=3.5, attributes={"io": 1}))
        for watcher in (first, second):
            assert await watcher.positions(2) == [
                {
                    "type": "position",
                    "topic": "event:E1",
                    "deviceId": "d1",
                    "lat": 52.1,
                    "lon": 4.3,
                    "ts": int(at.timestamp() * 1000),
                },
                {
                    "type": "position",
                    "topic": "event:E1",
                    "deviceId": "d1",
                    "lat": 52.1,
                    "lon": 4.3,
                    "ts": int(at.timestamp() * 1000) + 1000,
                    "speed": 3.5,
                    "attributes": {"io": 1},
                },
            ]
        # Nothing was sent here: the answer to a question is the first that comes.
        assert (await elsewhere.ask({"type": "events"}))["type"] == "events"
        assert await served.metric("processor_live_broadcast_records_total", instance_id="one") == 2
        assert await served.metric("processor_live_broadcast_fanout_messages_total", instance_id="one") == 4


async def test_a_device_in_two_events_gives_a_frame_for_each(stream: Stream) -> None:
    stream.enter("E1", ["d1"])
    stream.enter("E2", ["d1", "d2"])
    async with (
        serving(stream.settings) as served,
        watching(served, "E1", "E2") as both,
        watching(served, "E2") as second,
    ):
        stream.add(record("d1"), record("d2"))
        heard = Counter((frame["topic"], frame["deviceId"]) for frame in await both.positions(3))
        assert heard == {("event:E1", "d1"): 1, ("event:E2", "d1"): 1, ("event:E2", "d2"): 1}
        assert [frame["deviceId"] for frame in await second.positions(2)] == ["d1", "d2"]


async def test_many_watchers_get_every_position_in_order_while_they_talk_and_come_and_go(stream: Stream) -> None:
    stream.enter("E1", ["d1"])
    rounds = 20
    async with serving(stream.settings) as served, AsyncExitStack() as opened:
        watchers = [await opened.enter_async_context(watching(served, "E1")) for _ in range(30)]

        async def listen(watcher: Watcher) -> tuple[list[int], int]:
            """Times of the fixes, and how many answers came between them."""
            times: list[int] = []
            answers = 0
            while len(times) < rounds * 10:
                heard = await watcher.hear()
                if heard["type"] == "position":
                    times.append(heard["ts"])
                else:
                    answers += 1
            return times, answers

        listening = [asyncio.create_task(listen(watcher)) for watcher in watchers]
        positions = seconds_apart(rounds * 10)
        for number in range(rounds):
            stream.add(*positions[number * 10 : (number + 1) * 10])
            for watcher in watchers[number % 3 :: 3]:
                await watcher.say({"type": "events"})
            async with watching(served, "E1"):
                pass
        heard = await asyncio.gather(*listening)
    for times, _ in heard:
        assert times == [times[0] + 1000 * number for number in range(rounds * 10)]
    assert sum(answers for _, answers in heard) > 0


async def test_whoever_subscribed_before_anything_was_known_gets_the_snapshot_once_it_is(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.enter("E1", ["d1"])
    async with serving(stream.settings) as served, watching(served, "E1") as watcher:
        stream.add(record("d1"))
        await watcher.positions(1)
    monkeypatch.setattr(server, "MAP_WITHIN_S", 0.1)
    with stream.database.connect(Role.OWNER) as connection:
        connection.execute("LOCK TABLE live.entry_devices")
        async with serving(stream.settings) as served, watching(served) as watcher:
            assert await watcher.subscribe("E1") == []
            connection.rollback()
            assert [position["deviceId"] for position in (await watcher.hear())["snapshot"]] == ["d1"]


@pytest.mark.parametrize("both_ways_to_send", ["together"], indirect=True)
async def test_a_kernel_that_refuses_costs_a_connection_and_no_position_after_it(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.enter("E1", ["d1"])
    async with serving(stream.settings) as served:
        async with watching(served, "E1") as watcher:
            stream.add(record("d1"))
            await watcher.positions(1)
            monkeypatch.setattr(io_uring, "_ENTER", 100_000)  # no such call
            stream.add(record("d1"))
            assert (await watcher.closed())[0] == 1006
        async with watching(served, "E1") as watcher:
            stream.add(record("d1"))
            await watcher.positions(1)


@pytest.mark.parametrize("both_ways_to_send", ["together"], indirect=True)
async def test_a_kernel_that_refuses_for_one_event_costs_the_watchers_of_other_events_nothing(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.enter("E1", ["d1"])
    stream.enter("E2", ["d2"])
    async with serving(stream.settings) as served, watching(served, "E1") as first, watching(served, "E2") as second:
        stream.add(record("d1"), record("d2"))
        await first.positions(1)
        await second.positions(1)
        monkeypatch.setattr(io_uring, "_ENTER", 100_000)  # no such call
        stream.add(record("d1"), record("d2"))
        assert (await first.closed())[0] == 1006
        await second.positions(1)


async def test_a_device_in_no_event_counts_as_an_orphan_and_is_sent_to_nobody(stream: Stream) -> None:
    stream.enter("E1", ["d1"])
    async with serving(stream.settings, instance_id="orphans") as served, watching(served, "E1") as watcher:
        stream.add(record("stray"), record("stray"), record("d1"))
        assert [frame["deviceId"] for frame in await watcher.positions(1)] == ["d1"]
        assert await served.metric("processor_live_broadcast_orphan_records_total", instance_id="orphans") == 2


async def test_a_change_of_who_takes_part_is_followed_within_a_second(stream: Stream) -> None:
    """The map is read every 30 s: whoever did not hear of the change would miss it in this test."""
    async with serving(stream.settings) as served, watching(served, "E1") as watcher:

        async def someone_takes_part() -> bool:
            return bool((await watcher.ask({"type": "events"}))["events"])

        async def nobody_takes_part() -> bool:
            return not await someone_takes_part()

        stream.enter("E1", ["d1"])
        await until(someone_takes_part, "d1 takes part", within_s=1)
        stream.add(record("d1"))
        await watcher.positions(1)

        stream.withdraw("d1")
        await until(nobody_takes_part, "d1 is out", within_s=1)
        stream.add(record("d1"))
        stream.enter("E1", ["d2"])
        await until(someone_takes_part, "d2 takes part", within_s=1)
        stream.add(record("d2"))
        assert [frame["deviceId"] for frame in await watcher.positions(1)] == ["d2"]


async def test_the_last_good_map_serves_while_the_database_is_away(stream: Stream) -> None:
    stream.enter("E1", ["d1"])
    participants = Participants(stream.database, 0.1)
    await participants._refresh()
    participants._database = Database("postgresql://nobody@127.0.0.1:1/none")
    await participants._refresh()
    assert list(participants.events_of("d1")) == ["E1"]
    assert [(listed.event, listed.devices) for listed in participants.events()] == [("E1", 1)]


async def test_a_map_that_can_not_be_read_to_its_end_is_given_up(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(participants_module, "READ_WITHIN_S", 0.2)
    participants = Participants(stream.database, 0.1)
    with stream.database.connect(Role.OWNER) as connection:
        connection.execute("LOCK TABLE live.entry_devices")
        async with asyncio.timeout(5):
            await participants._refresh()
    assert not participants.loaded.is_set()


async def test_every_instance_sees_everything_while_the_durable_writers_split_the_work(stream: Stream) -> None:
    stream.enter("E1", ["d1"])
    stop = asyncio.Event()
    writers = [
        asyncio.create_task(write_until_stopped(stream.settings.model_copy(update={"telemetry_batch_size": 5}), stop))
        for _ in range(2)
    ]
    async with (
        serving(stream.settings) as one,
        serving(stream.settings) as other,
        watching(one, "E1") as first,
        watching(other, "E1") as second,
    ):
        assert len(stream.groups()) == 3
        positions = seconds_apart(200)
        for start in range(0, 200, 10):
            stream.add(*positions[start : start + 10])
            await asyncio.sleep(0)
        everything = [frame["ts"] for frame in await first.positions(200)]
        assert everything == sorted(everything)
        assert [frame["ts"] for frame in await second.positions(200)] == everything
        await asyncio.to_thread(eventually, lambda: stream.count("positions") == 200, "all positions are written")
        stop.set()
        shares = [written.new for written in await asyncio.gather(*writers)]
    assert sum(shares) == 200
    assert all(shares), "one writer did it all"


async def test_ten_thousand_malformed_records_are_counted_and_hold_up_nothing(stream: Stream) -> None:
    stream.enter("E1", ["d1"])
    async with serving(stream.settings, instance_id="bad") as served, watching(served, "E1") as watcher:
        bad: list[Record] = [
            record("d1") | {"payload": "{"},
            record("d1") | {"ts": "never"},
            {"x": "y"},
            record("d1", latitude=100),
        ]
        stream.add(*bad * 2500, record("d1", latitude=1.5))
        assert [frame["lat"] for frame in await watcher.positions(1)] == [1.5]
        assert await served.metric("processor_live_broadcast_malformed_records_total", instance_id="bad") == 10_000


async def test_lag_counts_from_the_streams_id_and_the_age_of_the_fix_apart(stream: Stream) -> None:
    stream.enter("E1", ["d1"])
    async with serving(stream.settings) as served, watching(served, "E1") as watcher:
        lag, age = "processor_live_broadcast_lag_ms_sum", "processor_live_broadcast_fix_age_ms_sum"
        before = await served.metric(lag), await served.metric(age)
        stream.add(record("d1", at=datetime.now(UTC) - timedelta(hours=5)))
        await watcher.positions(1)
        assert await served.metric(lag) - before[0] < 10_000
        assert 17_900_000 < await served.metric(age) - before[1] < 18_100_000


async def test_the_snapshot_is_of_the_newest_fix_and_outlives_the_server(stream: Stream) -> None:
    stream.enter("E1", ["d1", "d2", "silent"])
    now = datetime.now(UTC)
    async with serving(stream.settings) as served, watching(served, "E1") as watcher:
        stream.add(record("d1", at=now, latitude=1.0), record("d2", at=now), record("other", at=now))
        stream.add(record("d1", at=now - timedelta(hours=1), latitude=2.0))
        late = await watcher.positions(3)
        assert late[-1]["lat"] == 2.0  # sent, but not the last known
        async with watching(served) as newcomer:
            snapshot = await newcomer.subscribe("E1")
    assert {frame["deviceId"]: frame["lat"] for frame in snapshot} == {"d1": 1.0, "d2": 52.1}
    assert snapshot[0].keys() == {"type", "topic", "deviceId", "lat", "lon", "ts"}

    async with serving(stream.settings) as served, watching(served) as watcher:
        assert sorted(map(str, await watcher.subscribe("E1"))) == sorted(map(str, snapshot))


async def test_a_position_older_than_what_is_kept_is_forgotten_in_memory_and_in_redis(stream: Stream) -> None:
    now = datetime.now(UTC)
    old, new = (int((now - timedelta(days=days)).timestamp() * 1000) for days in (31, 29))
    saving = LastPositions(stream.name, keep_days=0)
    saving.put("gone", old, b'{"ts":%d}' % old)
    saving.put("here", new, b'{"ts":%d}' % new)
    async with open_redis(stream.settings) as client:
        await saving.save(client)
        for retention_days, left in ((0, [b"gone", b"here"]), (30, [b"here"]), (28, [])):
            loading = LastPositions(stream.name, keep_days=retention_days)
            await loading.load(client)
            assert len(loading.bodies(["gone", "here"])) == len(left)
            assert sorted(await client.hkeys(f"{stream.name}:last-positions")) == left

        kept_for_long = LastPositions(stream.name, keep_days=30)
        kept_for_long.put("gone", old, b'{"ts":%d}' % old)
        await kept_for_long.save(client)
        await kept_for_long.forget_old(client)
        assert kept_for_long.bodies(["gone"]) == []
        assert await client.hkeys(f"{stream.name}:last-positions") == []
