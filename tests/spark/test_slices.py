"""A huge tenant is read in slices, and all of them at one moment: rows that move count once, and sums are exact."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType, TimestampType

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr_dagster.spark import sync
from clientmgr_dagster.spark.devices import reading_conninfo
from clientmgr_dagster.spark.partial_counts import combined
from clientmgr_dagster.spark.snapshots import WHOLE_TABLES, Snapshot, SnapshotGoneError, shared_snapshot
from clientmgr_dagster.spark.tenant_metrics import COUNTS
from clientmgr_dagster.spark.tenant_source import Request, TenantReader
from tests.spark.tenants import EMPTY, HUGE, Tenants
from tests.waiting import eventually

DEVICES = 6000
HOLDERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
METRICS = {
    "query": "dashboard_metrics",
    "parameters": {"collected_at": "2026-01-01T00:00:00+00:00", "orphaned_before": "2025-12-01T00:00:00+00:00"},
}
TYPES: dict[str, DataType] = {"bigint": LongType(), "string": StringType(), "timestamp": TimestampType()}
Rows = list[dict[str, Any]]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"spark_slice_mb": 1})


@pytest.fixture
def huge(tenants: Tenants) -> Tenants:
    tenants.activate(HUGE, EMPTY)
    tenants.add_devices(HUGE, DEVICES)
    tenants.query('ANALYZE "tenant_12".devices')
    return tenants


def slices_of(conninfo: str, snapshot: Snapshot, schema: str, **asked: Any) -> Iterator[Rows]:
    """What each task's pack gives, one after the other. A pack has one slice: there are enough partitions."""
    columns = (column.split() for column in schema.split(", "))
    of_spark = StructType([StructField(name, TYPES[kind]) for name, kind in columns])
    reader = TenantReader(conninfo, Request((HUGE,), 50, snapshot=snapshot, **asked), of_spark)
    for pack in reader.partitions():
        yield [row for batch in reader.read(pack) for row in batch.to_pylist()]


def everything(conninfo: str, snapshot: Snapshot, schema: str, **asked: Any) -> Rows:
    return [row for rows in slices_of(conninfo, snapshot, schema, **asked) for row in rows]


def shake(tenants: Tenants) -> None:
    """Every row goes to another place, some to another contact, some go and some come."""
    tenants.query('UPDATE "tenant_12".devices SET contact_id = contact_id + 100000, updated_at = now()')
    tenants.query('DELETE FROM "tenant_12".devices WHERE client_id LIKE %s', ("c%7",))
    tenants.add_devices(HUGE, 50, first=DEVICES + 1)


def test_rows_that_move_while_slices_are_read_are_neither_missed_nor_doubled(
    database: Database, settings: Settings, huge: Tenants
) -> None:
    conninfo = reading_conninfo(database, settings)
    found: list[Rows] = []
    with shared_snapshot(conninfo, settings, (HUGE, EMPTY)) as snapshot:
        for rows in slices_of(conninfo, snapshot, "customer_id bigint, client_id string"):
            found.append(rows)
            huge.query('UPDATE "tenant_12".devices SET updated_at = now()')
    clients = [row["client_id"] for rows in found for row in rows]
    assert len(found) >= 3
    assert all(found), "each slice has its part"
    assert len(clients) == len(set(clients)) == DEVICES


@pytest.mark.parametrize("statistics", [True, False], ids=["contacts in ranges", "contacts in one slice"])
def test_a_huge_tenants_numbers_are_exact_though_it_changes_between_slices(
    database: Database, settings: Settings, huge: Tenants, statistics: bool
) -> None:
    conninfo = reading_conninfo(database, settings)
    counts = f"customer_id bigint, {COUNTS}, error string"
    (expected,) = everything(conninfo, WHOLE_TABLES, counts, **METRICS)
    assert expected["contacts"] == 3001 - 1, "they are fewer than devices: counted in two slices they would be too many"
    with shared_snapshot(conninfo, settings, (HUGE,)) as held:
        (table,) = held.tables
        assert table.contact_bounds
        known = table if statistics else replace(table, contact_bounds=())
        snapshot = msgspec.structs.replace(held, tables=(known,))
        found: Rows = []
        for number, (row,) in enumerate(slices_of(conninfo, snapshot, counts, **METRICS)):
            found.append(row)
            if number == 0:
                shake(huge)
    assert len(found) >= 3
    assert sum(1 for row in found if row["contacts"]) == (len(found) if statistics else 1)
    row = combined(found)
    for name in ("devices_by_platform", "devices_by_provider"):
        assert json.loads(row.pop(name)) == json.loads(expected.pop(name))
    assert row.pop("table_bytes") >= expected.pop("table_bytes")
    assert row == expected


def test_contacts_and_samples_of_slices_are_those_of_the_whole(
    database: Database, settings: Settings, huge: Tenants
) -> None:
    conninfo = reading_conninfo(database, settings)
    sample = {"query": "sync_sample", "parameters": {"size": 20}}
    contacts = everything(conninfo, WHOLE_TABLES, "contact_id bigint", query="linked_contacts")
    sampled = everything(conninfo, WHOLE_TABLES, sync._SAMPLE, **sample)
    with shared_snapshot(conninfo, settings, (HUGE,)) as snapshot:
        shake(huge)
        of_slices = everything(conninfo, snapshot, "contact_id bigint", query="linked_contacts")
        samples = everything(conninfo, snapshot, sync._SAMPLE, **sample)
    key: Callable[[dict[str, Any]], str] = lambda row: str(row["sample_hash"])  # noqa: E731
    assert sorted(row["contact_id"] for row in of_slices) == sorted(row["contact_id"] for row in contacts)
    assert len(samples) > 20
    assert sorted(samples, key=key)[:20] == sorted(sampled, key=key)


def test_a_query_that_does_not_add_up_is_asked_of_the_whole(
    database: Database, settings: Settings, huge: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = {"devices": 'SELECT count(*) AS devices FROM :"schema".devices;'}
    monkeypatch.setattr("clientmgr_dagster.spark.tenant_source.device_queries", lambda _: queries)
    conninfo = reading_conninfo(database, settings)
    with shared_snapshot(conninfo, settings, (HUGE,)) as snapshot:
        assert snapshot.tables
        assert everything(conninfo, snapshot, "devices bigint", query="devices") == [{"devices": DEVICES}]


def test_a_slice_that_fails_makes_its_tenant_fail() -> None:
    rows: Rows = [
        {"customer_id": 12, "devices": 5, "error": None},
        {"customer_id": 12, "devices": None, "error": "gone"},
    ]
    assert combined(rows) == {"customer_id": 12, "devices": None, "error": "gone"}


def test_a_snapshot_is_held_only_for_large_tables_and_ends_with_the_read(
    database: Database, settings: Settings, huge: Tenants
) -> None:
    conninfo = reading_conninfo(database, settings)
    with shared_snapshot(conninfo, settings, (EMPTY,)) as snapshot:
        assert snapshot == WHOLE_TABLES
        assert huge.query(HOLDERS) == [(0,)]

    def read() -> None:
        with shared_snapshot(conninfo, settings, (HUGE,)):
            assert huge.query(HOLDERS) == [(1,)]
            raise ValueError("a read that fails")

    with pytest.raises(ValueError, match="a read that fails"):
        read()
    eventually(lambda: huge.query(HOLDERS) == [(0,)], "it ends with the read")


HOLD = """
import sys, threading
from clientmgr.base.settings import load_settings
from clientmgr_dagster.spark.snapshots import shared_snapshot
with shared_snapshot(sys.argv[1], load_settings(spark_slice_mb=1), [12]):
    print("held", flush=True)
    threading.Event().wait(60)
"""


def test_a_killed_run_leaves_no_snapshot(database: Database, settings: Settings, huge: Tenants) -> None:
    command = [sys.executable, "-c", HOLD, reading_conninfo(database, settings)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ.copy()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert huge.query(HOLDERS) == [(1,)]
        process.send_signal(signal.SIGKILL)
    eventually(lambda: huge.query(HOLDERS) == [(0,)], "the server notices that its client is gone")


def test_slices_of_a_snapshot_that_grew_too_old_fail_and_say_why(
    database: Database, settings: Settings, huge: Tenants
) -> None:
    conninfo = reading_conninfo(database, settings)
    brief = settings.model_copy(update={"spark_snapshot_max_s": 1})
    with shared_snapshot(conninfo, brief, (HUGE,)) as snapshot:
        eventually(lambda: huge.query(HOLDERS) == [(0,)], "PostgreSQL ends it")
        with pytest.raises(SnapshotGoneError, match=rf"{snapshot.id} .* is gone.*SPARK_SNAPSHOT_MAX_S"):
            everything(conninfo, snapshot, "customer_id bigint, error string", failures_as_rows=True)
    with shared_snapshot(conninfo, settings, (HUGE,)) as snapshot:
        assert len(everything(conninfo, snapshot, "customer_id bigint")) == DEVICES, "another try begins anew"


def test_a_table_that_is_rewritten_between_slices_is_not_read_further(
    database: Database, settings: Settings, huge: Tenants
) -> None:
    conninfo = reading_conninfo(database, settings)
    with shared_snapshot(conninfo, settings, (HUGE,)) as snapshot:
        slices = slices_of(conninfo, snapshot, "customer_id bigint")
        next(slices)
        huge.query('VACUUM FULL "tenant_12".devices')
        with pytest.raises(SnapshotGoneError, match="was rewritten"):
            next(slices)
