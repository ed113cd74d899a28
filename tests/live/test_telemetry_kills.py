"""Durable writers, PostgreSQL and Redis are killed while positions pour in, and not one is lost."""

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from clientmgr.local.embedded.redis import EmbeddedRedis
from clientmgr.operations.migrations import migrate_database
from tests.conftest import TEST_TUNING
from tests.live.stream import Stream, record, seconds_apart
from tests.streaming.processes import WorkerProcess
from tests.waiting import eventually

KILLS = 4
RECORDS_A_ROUND = 3000


def start(settings: Settings, folder: Path, number: int) -> WorkerProcess:
    return WorkerProcess(settings, folder / f"writer-{number}.log", "telemetry-writer")


def has_more_than(stream: Stream, count: int) -> bool:
    return stream.count("positions") > count


def test_killed_writers_lose_nothing(stream: Stream, tmp_path: Path) -> None:
    settings = stream.settings.model_copy(update={"telemetry_batch_size": 50})
    crew = [start(settings, tmp_path, number) for number in range(2)]
    found_in_hand = 0
    try:
        for writer in crew:
            writer.wait_until_started()
        for kill in range(KILLS):
            stream.add(*seconds_apart(RECORDS_A_ROUND, f"device-{kill}"), record() | {"payload": f"malformed {kill}"})
            eventually(lambda: stream.pending() > 0, "somebody has entries in hand")
            crew[kill % 2].kill()
            found_in_hand += stream.pending() > 0
            crew[kill % 2] = start(settings, tmp_path, 2 + kill)
        eventually(lambda: stream.count("positions") == KILLS * RECORDS_A_ROUND, "every position is there")
        eventually(lambda: stream.pending() == 0, "everything is acknowledged")
        assert stream.count("rejected_records") == KILLS
        assert found_in_hand, "no kill hit a writer at work: the test proves nothing"
    finally:
        for writer in crew:
            writer.kill()


@pytest.fixture
def crashing_servers(tmp_path: Path) -> Iterator[tuple[EmbeddedPostgres, EmbeddedRedis]]:
    """Servers of the test's own."""
    postgres = EmbeddedPostgres(tmp_path / "postgres", tuning=TEST_TUNING)
    redis = EmbeddedRedis(tmp_path / "redis")
    postgres.start()
    redis.start()
    yield postgres, redis
    redis.stop()
    postgres.stop()


def test_crashes_of_postgresql_and_redis_lose_nothing_that_redis_still_has(
    stream: Stream, crashing_servers: tuple[EmbeddedPostgres, EmbeddedRedis], tmp_path: Path
) -> None:
    postgres, redis = crashing_servers
    database = Database(postgres.url())
    migrate_database(database)
    settings = stream.settings.model_copy(
        update={
            "database_url": database.url,
            **postgres.role_settings(),
            "redis_url": redis.url,
            "telemetry_batch_size": 50,
            "telemetry_stream_keep_s": 3600.0,
        }
    )
    own = Stream(settings, database)
    writer = start(settings, tmp_path, 0)
    try:
        for server in (postgres, redis):
            before = own.count("positions")
            own.add(*seconds_apart(RECORDS_A_ROUND, server.name))
            eventually(partial(has_more_than, own, before), "the writer is at work")
            server.crash()
            server.restart()
        own.add(*seconds_apart(10, "afterwards"))
        in_redis = {
            (fields[b"device_id"].decode(), datetime.fromisoformat(fields[b"ts"].decode()))
            for _, fields in own.client.xrange(own.name)
        }
        eventually(
            lambda: in_redis <= set(own.query("SELECT device_id, ts FROM live.positions")),
            "all that Redis has is written",
        )
        assert own.count("positions") >= RECORDS_A_ROUND + 10
        eventually(lambda: own.pending() == 0, "everything is acknowledged")
        assert writer.running, writer.log
    finally:
        writer.kill()
