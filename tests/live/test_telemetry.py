"""The durable writer: every position once, what can't be kept parked, the stream trimmed only behind it."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import REGISTRY

from clientmgr.base.database import Role
from clientmgr.contracts.daemons import DURABLE_GROUP
from clientmgr.live.redis_stream import open_redis
from streaming.live.telemetry.maintenance import StreamMaintenance
from streaming.live.telemetry.store import PositionStore, Written
from streaming.live.telemetry.writer import write_until_stopped
from tests.live.stream import Stream, record, seconds_apart

pytestmark = pytest.mark.anyio


async def burst(stream: Stream, **settings: object) -> Written:
    return await write_until_stopped(stream.settings.model_copy(update=settings), asyncio.Event(), burst=True)


async def look_after(stream: Stream, **settings: object) -> None:
    """One look of the maintenance, which needs no store for it."""
    changed = stream.settings.model_copy(update=settings)
    async with open_redis(changed) as client, stream.database.pool_async(Role.WRITER, size=1) as pool:
        await StreamMaintenance(changed, PositionStore(pool, stream.name, 0), DURABLE_GROUP).maintain_stream(client)


async def test_a_position_is_kept_with_all_that_was_measured(stream: Stream) -> None:
    at = datetime.now(UTC).replace(microsecond=123000) - timedelta(hours=3)
    measured = {"altitude": 1.5, "speed": 2.5, "course": 3.5, "accuracy": 4.5, "satellites": 7, "attributes": {"a": 1}}
    stream.add(record("d1", at=at, **measured), record("d2", at=at))

    assert await burst(stream) == Written(new=2)

    columns = "device_id, ts, latitude, longitude, altitude, speed, course, accuracy, satellites, codec, attributes"
    assert stream.query(f"SELECT {columns} FROM live.positions ORDER BY device_id") == [
        ("d1", at, 52.1, 4.3, 1.5, 2.5, 3.5, 4.5, 7, "8E", {"a": 1}),
        ("d2", at, 52.1, 4.3, None, None, None, None, None, "8E", None),
    ]
    assert stream.pending() == 0


async def test_what_comes_twice_is_kept_once(stream: Stream) -> None:
    twice = seconds_apart(10)
    stream.add(*twice, *twice)
    await burst(stream, telemetry_batch_size=7)
    stream.add(*twice)

    assert await burst(stream) == Written(seen_before=10)
    assert stream.count("positions") == 10


async def test_ten_thousand_malformed_records_are_parked_with_their_reason_and_hold_up_nothing(stream: Stream) -> None:
    bad = record() | {"payload": "{not json"}
    stream.add(*[bad] * 9_999, record("good"), {"nothing": b"\xff\0"})

    assert await burst(stream) == Written(new=1, rejected=10_000)

    reasons = dict(stream.query("SELECT reason, count(*) FROM live.rejected_records GROUP BY 1"))
    assert {reason.partition(":")[0]: count for reason, count in reasons.items()} == {"payload": 9_999, "device_id": 1}
    ((kept,),) = stream.query("SELECT fields FROM live.rejected_records WHERE reason LIKE 'device_id%%'")
    assert kept == b'{"nothing":"\\\\xff\\u0000"}'
    assert stream.pending() == 0


async def test_one_record_that_the_database_refuses_costs_only_itself(stream: Stream) -> None:
    stream.add(*seconds_apart(5, "before"), record("refused", attributes={"x": "\0"}), *seconds_apart(5, "after"))

    assert await burst(stream) == Written(new=10, rejected=1)
    ((reason,),) = stream.query("SELECT reason FROM live.rejected_records")
    assert "unsupported Unicode escape sequence" in reason


async def test_a_record_older_than_the_retention_is_parked(stream: Stream) -> None:
    stream.add(record(at=datetime.now(UTC) - timedelta(days=31)))
    assert await burst(stream) == Written(rejected=1)


async def test_days_beyond_the_retention_are_dropped_whole(stream: Stream) -> None:
    now = datetime.now(UTC)
    stream.add(*(record(at=now - timedelta(days=days)) for days in range(5)))
    await burst(stream)
    async with stream.database.pool_async(Role.WRITER, size=1) as pool:
        await PositionStore(pool, stream.name, retention_days=2).maintain_partitions(now)

    ((oldest,),) = stream.query("SELECT min(ts) FROM live.positions")
    assert oldest.date() == (now - timedelta(days=2)).date()
    assert stream.count("positions") == 3


async def test_a_partition_that_somebody_dropped_is_made_again(stream: Stream) -> None:
    async with stream.database.pool_async(Role.WRITER, size=1) as pool:
        store = PositionStore(pool, stream.name, 0)
        await store.maintain_partitions(datetime.now(UTC))
        with stream.database.connect(Role.OWNER) as connection:
            connection.execute("SELECT live.drop_position_days(current_date + 2)")
        fields = {name.encode(): str(value).encode() for name, value in record().items()}
        assert await store.write([(b"1-1", fields)]) == Written(new=1)


async def test_what_a_dead_consumer_left_behind_is_taken_over(stream: Stream) -> None:
    stream.add(*seconds_apart(20))
    stream.client.xgroup_create(stream.name, DURABLE_GROUP, id="0")
    stream.client.xreadgroup(DURABLE_GROUP, "dead", {stream.name: ">"}, count=15)
    stream.client.xclaim(
        stream.name, DURABLE_GROUP, "dead", 0, [e for e, _ in stream.client.xrange(stream.name)], idle=60_000
    )

    assert await burst(stream) == Written(new=20)
    assert stream.pending() == 0


async def test_who_comes_back_under_its_name_takes_up_what_it_had_in_hand(stream: Stream) -> None:
    stream.add(*seconds_apart(20))
    stream.client.xgroup_create(stream.name, DURABLE_GROUP, id="0")
    stream.client.xreadgroup(DURABLE_GROUP, "me", {stream.name: ">"}, count=15)

    assert await burst(stream, instance_id="me", telemetry_claim_idle_ms=3_600_000) == Written(new=20)


async def test_a_group_that_is_gone_is_made_again_and_reads_from_the_start(stream: Stream) -> None:
    stream.add(*seconds_apart(5))
    await burst(stream)
    stream.client.xgroup_destroy(stream.name, DURABLE_GROUP)
    stream.add(record("later"))

    assert await burst(stream) == Written(new=1, seen_before=5)


async def test_the_stream_is_trimmed_behind_what_is_durable_and_no_further(stream: Stream) -> None:
    durable = stream.add(*seconds_apart(500))
    await burst(stream)
    pending = stream.add(*seconds_apart(200, "pending"))
    stream.client.xreadgroup(DURABLE_GROUP, "slow", {stream.name: ">"})
    unread = stream.add(*seconds_apart(200, "unread"))

    await look_after(stream)

    left = [entry_id.decode() for entry_id, _ in stream.client.xrange(stream.name)]
    assert left[-400:] == pending + unread
    assert len(left) < len(durable) + 400


async def test_young_records_stay_in_the_stream_for_others(stream: Stream) -> None:
    stream.add(*seconds_apart(500))
    await burst(stream, telemetry_stream_keep_s=60.0)
    await look_after(stream, telemetry_stream_keep_s=60.0)
    assert stream.client.xlen(stream.name) == 500


async def test_a_writer_that_stops_leaves_no_consumer_behind(stream: Stream) -> None:
    stream.add(record())
    await burst(stream)
    assert stream.client.xinfo_consumers(stream.name, DURABLE_GROUP) == []


async def test_counters_start_at_0_so_that_the_first_rejected_position_is_seen_as_growth(stream: Stream) -> None:
    assert await burst(stream, instance_id="counts") == Written()
    counters = ("records", "positions", "duplicates", "rejected", "claimed")
    names = [f"processor_telemetry_{counter}_total" for counter in counters]
    assert [REGISTRY.get_sample_value(name, {"instance_id": "counts"}) for name in names] == [0.0] * 5
