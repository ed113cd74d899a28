"""Entries that somebody trims from the stream before they are durable are counted, each once."""

import asyncio

import pytest
from prometheus_client import REGISTRY

from clientmgr.base.database import Database, Role
from clientmgr.contracts.daemons import DURABLE_GROUP
from clientmgr.local.embedded.server import free_port
from streaming.live.telemetry.losses import StreamLosses
from streaming.live.telemetry.maintenance import StreamMaintenance
from streaming.live.telemetry.store import PositionStore, Written
from streaming.live.telemetry.writer import write_until_stopped
from tests.live.serving import until
from tests.live.stream import Stream, record, seconds_apart

pytestmark = pytest.mark.anyio


def lost() -> float:
    found = REGISTRY.get_sample_value("processor_telemetry_stream_lost_total")
    assert found is not None
    return found


async def burst(stream: Stream, **settings: object) -> Written:
    return await write_until_stopped(stream.settings.model_copy(update=settings), asyncio.Event(), burst=True)


async def test_what_was_trimmed_while_no_writer_was_there_is_counted_when_one_comes(stream: Stream) -> None:
    stream.add(*seconds_apart(20))
    await burst(stream)
    before = lost()
    stream.add(*seconds_apart(50, "away"))
    stream.client.xtrim(stream.name, maxlen=10, approximate=False)

    assert await burst(stream) == Written(new=10)
    assert lost() - before == 40

    stream.add(record("afterwards"))
    assert await burst(stream) == Written(new=1)
    assert lost() - before == 40


@pytest.mark.parametrize("name", ["dead", "another"])
async def test_what_was_trimmed_from_under_a_dead_writer_is_counted_by_whoever_takes_it_over(
    stream: Stream, name: str
) -> None:
    stream.add(*seconds_apart(20))
    stream.client.xgroup_create(stream.name, DURABLE_GROUP, id="0")
    stream.client.xreadgroup(DURABLE_GROUP, "dead", {stream.name: ">"}, count=15)
    stream.client.xclaim(
        stream.name, DURABLE_GROUP, "dead", 0, [e for e, _ in stream.client.xrange(stream.name)], idle=60_000
    )
    stream.client.xtrim(stream.name, maxlen=8, approximate=False)
    before = lost()

    assert await burst(stream, instance_id=name) == Written(new=8)
    assert lost() - before == 12
    assert stream.pending() == 0


def test_a_loss_is_counted_once_however_often_it_is_looked_at() -> None:
    losses = StreamLosses()
    assert losses.newly_lost(added=100, length=100, read=50) == 0
    assert losses.newly_lost(added=150, length=50, read=50) == 50
    assert losses.newly_lost(added=150, length=50, read=50) == 0
    assert losses.newly_lost(added=160, length=30, read=50) == 30
    assert losses.newly_lost(added=160, length=30, read=160) == 0  # it has read on
    assert losses.newly_lost(added=200, length=20, read=160) == 20


def test_a_group_that_redis_can_not_place_has_lost_what_goes_from_then_on() -> None:
    losses = StreamLosses()
    assert losses.newly_lost(added=100, length=10, read=None) == 0
    assert losses.newly_lost(added=110, length=5, read=None) == 15


def test_a_stream_that_was_deleted_is_counted_anew() -> None:
    losses = StreamLosses()
    assert losses.newly_lost(added=100, length=10, read=100) == 0
    assert losses.newly_lost(added=5, length=5, read=0) == 0
    assert losses.newly_lost(added=20, length=5, read=3) == 12


async def test_the_stream_is_looked_after_while_the_database_is_away(stream: Stream) -> None:
    stream.add(*seconds_apart(500))
    await burst(stream, telemetry_stream_keep_s=60.0)
    assert stream.client.xlen(stream.name) == 500
    away = Database(f"postgresql://nobody@127.0.0.1:{free_port()}/nothing")
    stop = asyncio.Event()

    async def trimmed() -> bool:
        return bool(stream.client.xlen(stream.name) < 500)

    async with away.pool_async(Role.WRITER, size=1, timeout_s=0.2) as pool, asyncio.TaskGroup() as tasks:
        store = PositionStore(pool, stream.name, 0)
        tasks.create_task(StreamMaintenance(stream.settings, store, DURABLE_GROUP).run(stop))
        try:
            await until(trimmed, "the stream is trimmed", within_s=10)
        finally:
            stop.set()
