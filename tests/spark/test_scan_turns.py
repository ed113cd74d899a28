"""Runs that compare with DynamoDB scan it one after the other, and who waits holds nothing back."""

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr_dagster.spark import scan_turns, tenant_metrics
from clientmgr_dagster.spark.scan_turns import turn_to_scan
from clientmgr_dagster.spark.tenant_metrics import collect_metrics
from tests.waiting import eventually

WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name = 'waits' AND state = 'idle' AND query LIKE '%pg_try_advisory_lock%'
"""
"""It has asked and been answered: between two statements a connection has no snapshot."""


@pytest.fixture(autouse=True)
def _short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_turns, "PAUSE_S", 0.05)


@pytest.fixture
def waits(database: Database) -> Database:
    return replace(database, application_name="waits")


def count(database: Database, query: str) -> int:
    with database.connect(Role.OWNER) as connection:
        return int(connection.execute(query.encode()).fetchall()[0][0])


class Stopped(BaseException):
    """What an interrupt raises in the main thread."""


@contextmanager
def interrupt_after(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def is_free(database: Database, table: str) -> bool:
    try:
        with interrupt_after(0.5), turn_to_scan(database, table):
            return True
    except Stopped:
        return False


def test_a_table_is_scanned_by_one_run_at_a_time_and_another_table_meanwhile(database: Database) -> None:
    with turn_to_scan(database, "devices"):
        assert not is_free(database, "devices")
        assert is_free(database, "other devices")
    eventually(lambda: is_free(database, "devices"), "the turn is given back")


def test_who_is_stopped_while_waiting_ends_and_takes_no_turn(database: Database, waits: Database) -> None:
    with turn_to_scan(database, "devices"):
        assert not is_free(waits, "devices")
        eventually(lambda: count(database, WAITING) == 0, "its connection is closed")
    eventually(lambda: is_free(database, "devices"), "nobody is in the queue")


def test_a_long_scan_keeps_its_turn_where_idle_sessions_are_ended(database: Database) -> None:
    conninfo = make_conninfo(
        database.conninfo(Role.WRITER), options="-c role=clientmgr_writer -c idle_session_timeout=100"
    )
    with turn_to_scan(replace(database, role_urls={Role.WRITER: conninfo}), "devices"):
        assert not is_free(database, "devices")


def test_a_run_that_waits_has_no_snapshot_yet(
    database: Database, waits: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings.model_copy(update={"sync_validation": "on"})
    taken = threading.Event()

    def take_snapshot(*_: Any) -> None:
        taken.set()
        raise Stopped

    monkeypatch.setattr(tenant_metrics, "shared_snapshot", take_snapshot)
    now = datetime.now(UTC)
    nothing = cast(SparkSession, None)

    with ThreadPoolExecutor(1) as executor:
        with turn_to_scan(database, settings.dynamodb_devices_table):
            run = executor.submit(
                collect_metrics, nothing, waits, settings, [], collected_at=now, orphaned_before=now, run_id="r"
            )
            eventually(lambda: count(database, WAITING) == 1, "it waits", within_s=10)
            assert not taken.is_set()
        with pytest.raises(Stopped):
            run.result(10)
    assert taken.is_set(), "it goes on when it is its turn"
