"""The durable writer where the database refuses what nobody foresaw, refuses to park it, or is not there at all."""

import asyncio

import pytest
from structlog.testing import capture_logs

from clientmgr.base.database import Role
from clientmgr.local.embedded.server import free_port
from streaming.live.telemetry import writer as telemetry
from streaming.live.telemetry.store import Written
from streaming.live.telemetry.writer import write_until_stopped
from tests.live.serving import until
from tests.live.stream import Stream, record, seconds_apart

pytestmark = pytest.mark.anyio

# A sequence keeps its place when the transaction is rolled back.
REFUSE_SOME = """
    CREATE SEQUENCE live.attempts;
    CREATE FUNCTION live.refuse() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        IF nextval('live.attempts') <= TG_ARGV[0]::int THEN
            RAISE EXCEPTION 'nobody foresaw this';
        END IF;
        RETURN NEW;
    END $$
"""


def refuse(stream: Stream, trigger: str) -> None:
    with stream.database.connect(Role.OWNER) as connection:
        connection.execute(REFUSE_SOME)
        connection.execute(f"CREATE TRIGGER refuse BEFORE INSERT ON {trigger}".encode())


async def burst(stream: Stream) -> Written:
    settings = stream.settings.model_copy(update={"broker_max_attempts": 1})
    async with asyncio.timeout(60):
        return await write_until_stopped(settings, asyncio.Event(), burst=True)


async def test_a_record_refused_for_an_unforeseen_reason_is_parked_alone(stream: Stream) -> None:
    refuse(stream, "live.positions FOR EACH ROW WHEN (NEW.device_id = 'refused') EXECUTE FUNCTION live.refuse(1000)")
    stream.add(*seconds_apart(5, "before"), record("refused"), *seconds_apart(5, "after"))

    assert await burst(stream) == Written(new=10, rejected=1)

    ((reason,),) = stream.query("SELECT reason FROM live.rejected_records")
    assert "nobody foresaw this" in reason
    assert stream.pending() == 0


async def test_nothing_is_parked_for_a_right_that_the_writer_lost(stream: Stream) -> None:
    stream.add(*seconds_apart(5))
    with stream.database.connect(Role.OWNER) as connection:
        connection.execute("REVOKE INSERT ON live.positions FROM clientmgr_writer")
    with capture_logs() as logs:
        writing = asyncio.create_task(burst(stream))

        async def has_failed_often() -> bool:
            return sum("not written yet" in entry["event"] for entry in logs) >= 3

        await until(has_failed_often, "more attempts have failed than an unforeseen error gets")
        with stream.database.connect(Role.OWNER) as connection:
            connection.execute("GRANT INSERT ON live.positions TO clientmgr_writer")
        assert await writing == Written(new=5)
    assert stream.count("rejected_records") == 0


async def test_a_writer_that_can_not_park_tries_again(stream: Stream) -> None:
    refuse(stream, "live.rejected_records EXECUTE FUNCTION live.refuse(3)")
    stream.add(record("good"), record("bad") | {"payload": "{"})

    # The good one was written before its neighbour could be parked.
    assert await burst(stream) == Written(seen_before=1, rejected=1)
    assert stream.count("positions") == 1
    assert stream.pending() == 0


async def test_a_writer_told_to_stop_while_the_database_is_away_stops_and_leaves_its_batch(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "CONNECTION_WITHIN_S", 0.5)
    stream.add(record())
    nobody_there = f"postgresql://nobody@127.0.0.1:{free_port()}/nothing"
    settings = stream.settings.model_copy(update={"database_url": nobody_there, "database_writer_url": ""})
    stop = asyncio.Event()
    with capture_logs() as logs:
        writing = asyncio.create_task(write_until_stopped(settings, stop))

        async def has_failed() -> bool:
            return any("not written yet" in entry["event"] for entry in logs)

        await until(has_failed, "an attempt has failed")
        stop.set()
        async with asyncio.timeout(10):
            assert await writing == Written()
    assert stream.pending() == 1
