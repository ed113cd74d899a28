"""Lineage of what Dagster does not compute: daemons and what they write, seen by sensors; and what assets say."""

import asyncio
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import redis

from clientmgr.audit.log import AuditEntry, AuditLogger
from clientmgr.base import sqlfiles
from clientmgr.base.customer_ids import CustomerId, schema_name
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.contracts import daemons, topics
from clientmgr.contracts.deletions import CONTACT_DELETED, ORPHANS_DELETED
from clientmgr.local.embedded.redis import EmbeddedRedis
from clientmgr.operations.daemon_health import READS
from clientmgr.operations.service_health import LATE_FROM
from clientmgr.tenants.schema_manager import TenantSchemaManager
from clientmgr_dagster import code_versions
from clientmgr_dagster.catalogue import COLUMNS_FILE
from clientmgr_dagster.defs.lineage.daemon_health import REPORT_EVERY_S, daemon_health_sensor, look_at_daemons
from clientmgr_dagster.defs.lineage.daemons import daemon_assets
from clientmgr_dagster.defs.lineage.deletions import (
    EVENTS_A_DAY,
    EVENTS_A_TENANT,
    MOST_EVENTS,
    Allowance,
    deletion_lineage_sensor,
)
from clientmgr_dagster.resources import TenantsResource
from tests.dagster.rig import Rig
from tools.columns import named_tables, table_columns

Query = Callable[..., list[tuple[Any, ...]]]

CHAIN = ("daemons/contact_deletion", "devices", "audit_log")


@pytest.fixture
def rig(instance: dg.DagsterInstance, settings: Settings) -> Rig:
    return Rig(instance)


def test_every_daemon_that_makes_data_is_in_the_lineage() -> None:
    serving_others = {"dashboard", "intake", "pubsub-gateway"}
    assert {spec.key.path[-1] for spec in daemon_assets} == {
        process.name.replace("-", "_") for process in daemons.started() if process.name not in serving_others
    }


def test_a_daemon_that_leaves_its_work_undone_grows_stale_and_one_that_gets_on_does_not(
    rig: Rig, settings: Settings, database: Database, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def prepare() -> None:
        async with PostgresBroker(database, settings) as broker:
            for topic in (topics.WRITER, topics.REPUBLISHER):
                await broker.ensure_topic(topic)
                await broker.ensure_subscription(topic, topic)
            await broker.publish(topics.WRITER, [Message(b"{}", "1"), Message(b"{}", "1")])

    def look() -> dict[str, dict[str, Any]]:
        """By daemon: what Dagster was told, in order."""
        result = rig.evaluate(daemon_health_sensor)
        assert isinstance(result, dg.SensorResult)
        rig.cursors[daemon_health_sensor.name] = str(result.cursor)
        told: dict[str, dict[str, Any]] = {}
        for event in result.asset_events:
            told.setdefault(event.asset_key.path[-1], {})[type(event).__name__] = event
        return told

    asyncio.run(prepare())
    query("UPDATE clientmgr.outbox_message_t SET published_at = published_at - interval '1 hour'")

    first = look()
    assert set(first) == {spec.key.path[-1] for spec in daemon_assets}
    assert set(first["republisher"]) == {"AssetMaterialization", "AssetCheckEvaluation"}
    assert set(first["writer"]) == {"AssetObservation", "AssetCheckEvaluation"}, "no materialisation: it grows stale"
    assert (first["republisher"]["AssetCheckEvaluation"].passed, first["writer"]["AssetCheckEvaluation"].passed) == (
        True,
        False,
    )
    seen = first["writer"]["AssetObservation"].metadata
    assert (seen["state"].value, seen["unread"].value) == ("late", 2)
    assert first["broadcast"]["AssetMaterialization"].metadata["state"].value == "not used"
    others = {name.replace("-", "_") for name in READS} - {"writer", "republisher"}
    assert {first[name]["AssetObservation"].metadata["state"].value for name in others} == {"never started"}

    assert look() == {}, "nothing is new"

    # It works its queue off: still late by its oldest message, but not stuck.
    query("UPDATE clientmgr.consumer_offsets SET next_offset = next_offset + 1 WHERE next_offset = 1")
    second = look()
    assert set(second) == {"writer"}
    assert second["writer"]["AssetMaterialization"].metadata["state"].value == "late"
    assert second["writer"]["AssetCheckEvaluation"].passed

    monkeypatch.setattr("clientmgr_dagster.defs.lineage.daemon_health.REPORT_EVERY_S", -REPORT_EVERY_S)
    third = look()
    assert set(third) == set(first), "every few minutes all of them"
    assert set(third["republisher"]) == {"AssetMaterialization"}
    assert not third["writer"]["AssetCheckEvaluation"].passed, "nothing was read since the last look"


def test_readers_of_positions_are_judged_by_their_groups_wherever_they_run(
    rig: Rig, redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = f"telemetry:{uuid.uuid4().hex}"
    monkeypatch.setenv("REDIS_URL", redis_server.url)
    monkeypatch.setenv("REDIS_TELEMETRY_STREAM", stream)

    def states() -> dict[str, str]:
        looks = asyncio.run(look_at_daemons(TenantsResource()))
        return {one.daemon: str(one.numbers["state"]) for one in looks if one.daemon not in READS}

    with redis.Redis.from_url(redis_server.url) as client:
        assert states() == {"telemetry-writer": "nothing to do", "broadcast": "nothing to do"}
        client.xgroup_create(stream, "processor", mkstream=True)
        assert states() == {"telemetry-writer": "keeps up", "broadcast": "never started"}
        with client.pipeline(transaction=False) as many:
            for _ in range(LATE_FROM + 1):
                many.xadd(stream, {"ts": "1"})
            many.execute()
        client.xgroup_create(stream, "live-broadcast-dead", id="0")
        client.xgroup_create(stream, "live-broadcast-alive", id="$")
        assert states() == {"telemetry-writer": "late", "broadcast": "keeps up"}
        client.delete(stream)


def test_sweeps_and_positions_are_seen_when_there_are_new_ones(rig: Rig, query: Query) -> None:
    def seen() -> set[str]:
        result = rig.evaluate(daemon_health_sensor)
        assert isinstance(result, dg.SensorResult)
        rig.cursors[daemon_health_sensor.name] = str(result.cursor)
        return {one.asset_key.to_user_string() for one in result.asset_events} & {"erasure_sweeps", "live_positions"}

    query("INSERT INTO clientmgr.erasure_sweeps DEFAULT VALUES")
    assert seen() == set(), "a sweep under way proves nothing"
    query("""UPDATE clientmgr.erasure_sweeps SET finished_at = now(), counts = '{"log": 3}'""")
    query("SELECT live.ensure_position_days(ARRAY[current_date])")
    query("INSERT INTO live.positions (device_id, ts, latitude, longitude) VALUES ('d', now(), 1, 2)")
    query("SELECT pg_stat_force_next_flush()")
    assert seen() == {"erasure_sweeps", "live_positions"}
    assert seen() == set()


def test_only_tenants_of_whom_something_was_deleted_get_events_and_each_deletion_once(
    rig: Rig, manager: TenantSchemaManager, database: Database, settings: Settings
) -> None:
    manager.activate([1, 2, 3, 4], actor="test")
    rig.instance.add_dynamic_partitions("tenants", ["1", "2", "3"])
    audit = AuditLogger.from_settings(settings)

    def deleted(customer: int, action: str, devices: int) -> AuditEntry:
        return AuditEntry(customer, "test", action, "deleted", rows_affected=devices)

    def append(*entries: AuditEntry) -> None:
        with database.connect(Role.WRITER) as connection:
            audit.append(connection, entries)

    def events(asset: str) -> list[tuple[str | None, Any]]:
        found = rig.instance.fetch_materializations(dg.AssetKey(asset.split("/")), limit=100, ascending=True).records
        of_asset = [one.asset_materialization for one in found]
        return [(one.partition, one.metadata) for one in of_asset if one is not None]

    append(
        deleted(1, CONTACT_DELETED, 2),
        deleted(1, CONTACT_DELETED, 1),
        deleted(2, ORPHANS_DELETED, 5),
        deleted(4, CONTACT_DELETED, 1),
    )
    assert rig.tick(deletion_lineage_sensor)

    assert [key for key, _ in events("daemons/contact_deletion")] == ["1"], "orphans are another's work"
    assert [(key, seen["devices_deleted"].value) for key, seen in events("devices")] == [("1", 3), ("2", 5)]
    ((_, of_one), _) = events("audit_log")
    assert (of_one["first_row"].value, of_one["last_row"].value) == (1, 3), "its activation is the first"
    assert of_one["dashboard"].value == "http://127.0.0.1:8788/tenants/1"

    # Dagster did not know customer 4 yet.
    rig.instance.add_dynamic_partitions("tenants", ["4"])
    assert rig.tick(deletion_lineage_sensor)
    assert not rig.tick(deletion_lineage_sensor), "all is shown"
    assert [key for key, _ in events("devices")] == ["1", "2", "4"]

    # Killed after the events and before the record of them: they come once more, and none is lost.
    append(deleted(1, CONTACT_DELETED, 0))
    with database.connect(Role.OWNER) as connection:
        connection.execute("REVOKE INSERT, UPDATE ON clientmgr.observed_deletions FROM clientmgr_writer")
    with pytest.raises(Exception, match="permission denied"):
        rig.tick(deletion_lineage_sensor)
    with database.connect(Role.OWNER) as connection:
        connection.execute("GRANT INSERT, UPDATE ON clientmgr.observed_deletions TO clientmgr_writer")
    assert rig.tick(deletion_lineage_sensor)
    assert [key for key, _ in events("daemons/contact_deletion")] == ["1", "4", "1", "1"]

    # A customer who comes back does not bring the deletions of its earlier account along.
    manager.delete(4, actor="test")
    manager.activate([4], actor="test")
    rig.tick(deletion_lineage_sensor)
    assert [key for key, _ in events("devices")].count("4") == 1
    append(deleted(4, CONTACT_DELETED, 7))
    assert rig.tick(deletion_lineage_sensor)
    assert [seen["devices_deleted"].value for key, seen in events("devices") if key == "4"] == [1, 7]


def test_however_much_is_deleted_a_day_has_so_many_events() -> None:
    allowance, written = Allowance(MOST_EVENTS, at=0), 0.0
    for minute in range(24 * 60):
        allowed = allowance.grown(minute * 60)
        spent = allowed // EVENTS_A_TENANT * EVENTS_A_TENANT
        allowance, written = Allowance(allowed - spent, minute * 60), written + spent
    assert EVENTS_A_DAY < written <= EVENTS_A_DAY + MOST_EVENTS
    assert allowance.grown(10**9) == MOST_EVENTS, "what was not used does not add up"


def test_the_columns_that_assets_show_are_those_of_the_tables(database: Database, manager: TenantSchemaManager) -> None:
    manager.activate([1], actor="test")
    with database.connect(Role.OWNER) as connection:
        columns = table_columns(connection, schema_name(CustomerId(1)), named_tables())
    assert COLUMNS_FILE.read_text() == columns, "run `make columns`"


def test_a_code_version_moves_with_the_sql_that_computes_and_with_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(sqlfiles.sql_root(), tmp_path / "sql")
    monkeypatch.setattr(sqlfiles, "sql_root", lambda: tmp_path / "sql")
    modules = {name: f"clientmgr_dagster.defs.{name}.assets" for name in ("contact_deletion", "orphans")}
    modules |= {"tenancy": "clientmgr.tenants.schema_manager", "daemon": "streaming.contact_deletion"}

    def versions() -> dict[str, str]:
        code_versions.code_version.cache_clear()
        return {name: code_versions.code_version(module) for name, module in modules.items()}

    def moved_by(file: str) -> set[str]:
        before = versions()
        with (tmp_path / "sql" / file).open("a") as text:
            text.write("-- another thought\n")
        return {name for name, version in versions().items() if version != before[name]}

    try:
        assert moved_by("contact_deletions/results/deleted_contacts.sql") == {"contact_deletion"}
        assert moved_by("orphans/queries/orphans.sql") == {"orphans"}
        assert moved_by("tenant/0001_devices.sql") == {"tenancy"}
        assert "daemon" in moved_by("tenant/queries/devices.sql"), "what it imports counts too"
    finally:
        code_versions.code_version.cache_clear()
