"""`legacy_devices`, `legacy_import` and `migration_stage` in Dagster, on Spark and a stand-in of DynamoDB."""

import uuid
from collections.abc import Mapping

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from clientmgr.audit.log import AuditLogger
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Role
from clientmgr.base.settings import Settings, load_settings
from clientmgr.legacy_migration.moving import MigrationStatus, advance, status_of
from clientmgr.local.standins.dynamodb import DynamoDbStandIn
from clientmgr_dagster.defs.legacy_migration.assets import legacy_migration
from clientmgr_dagster.defs.legacy_migration.automation import legacy_migration_sensor
from clientmgr_dagster.resources import TenantsResource
from clientmgr_dagster.spark.session import SparkResource
from tests.spark.legacy import begin_migration, items_of
from tests.spark.tenants import EMPTY, HUGE, ORDINARY, Tenants

ALL = ("legacy_devices", "legacy_import", "migration_stage")


@pytest.fixture
def table(
    dynamodb_stand_in: DynamoDbStandIn, settings: Settings, monkeypatch: pytest.MonkeyPatch, tenants: Tenants
) -> str:
    name = f"devices-{uuid.uuid4().hex[:8]}"
    dynamodb_stand_in.create_devices_table(name)
    environment = {
        "DYNAMODB_ENDPOINT": dynamodb_stand_in.url,
        "DYNAMODB_DEVICES_TABLE": name,
        "SYNC_SCAN_ATTEMPTS": "1",
    }
    for variable, value in (settings.environment() | environment).items():
        monkeypatch.setenv(variable, value)
    return name


def materialize(instance: dg.DagsterInstance, *customers: CustomerId) -> dg.ExecuteInProcessResult:
    known = set(instance.get_dynamic_partitions("tenants"))
    instance.add_dynamic_partitions("tenants", [str(one) for one in customers if str(one) not in known])
    return dg.materialize(
        [legacy_migration],
        instance=instance,
        resources={"tenants": TenantsResource(), "spark": SparkResource()},
        tags={
            "dagster/asset_partition_range_start": str(customers[0]),
            "dagster/asset_partition_range_end": str(customers[-1]),
        },
        raise_on_error=False,
    )


def status(tenants: Tenants, customer: CustomerId) -> MigrationStatus:
    with tenants.database.connect(Role.READER) as connection:
        return next(status_of(connection, load_settings(), [customer]))


def test_one_scan_imports_everybody_who_was_started_and_tells_each_ones_own_numbers(
    spark: SparkSession,
    tenants: Tenants,
    table: str,
    dynamodb_stand_in: DynamoDbStandIn,
    instance: dg.DagsterInstance,
) -> None:
    tenants.activate(ORDINARY, HUGE, EMPTY)
    dynamodb_stand_in.put(table, [*items_of(ORDINARY, 40), *items_of(HUGE, 120), *items_of(EMPTY, 5)])
    begin_migration(tenants, [ORDINARY, HUGE])

    result = materialize(instance, ORDINARY, HUGE, EMPTY)

    assert result.success
    assert tenants.query('SELECT count(*), count(DISTINCT contact_id) FROM "tenant_11".devices') == [(40, 40)]
    assert tenants.query("""SELECT push_token FROM "tenant_12".devices WHERE client_id = 'c7'""") == [("token-12-7",)]
    assert tenants.query('SELECT count(*) FROM "tenant_13".devices') == [(0,)], "nobody has started it"
    assert tenants.query("SELECT count(*) FROM clientmgr.legacy_devices") == [(0,)]
    assert [status(tenants, one).stage for one in (ORDINARY, HUGE, EMPTY)] == ["in sync", "in sync", "postgres only"]
    for asset in ALL:
        assert instance.get_materialized_partitions(dg.AssetKey(asset)) == {str(ORDINARY), str(HUGE)}
    (check,) = result.get_asset_check_evaluations()
    assert (check.check_name, check.passed) == ("in_sync", True)
    own = {
        event.partition: event.step_materialization_data.materialization.metadata["imported"].value
        for event in result.get_asset_materialization_events()
        if event.asset_key == dg.AssetKey("legacy_import")
    }
    assert own == {str(ORDINARY): 40, str(HUGE): 120}


def test_what_can_not_be_imported_keeps_a_customer_from_being_in_sync_and_the_check_says_why(
    spark: SparkSession,
    tenants: Tenants,
    table: str,
    dynamodb_stand_in: DynamoDbStandIn,
    instance: dg.DagsterInstance,
) -> None:
    tenants.activate(ORDINARY)
    dynamodb_stand_in.put(
        table, [*items_of(ORDINARY, 3), *items_of(ORDINARY, 1, deviceKey="APP#bad", pushToken="x" * 9000)]
    )
    begin_migration(tenants, [ORDINARY])

    result = materialize(instance, ORDINARY)

    found = status(tenants, ORDINARY)
    assert (found.stage, found.imported, found.rejected) == ("importing", 3, 1)
    assert list(found.rejections) == ["payload.pushToken: expected `str` of length <= 8192"]
    (check,) = result.get_asset_check_evaluations()
    assert not check.passed
    # Mended there, and imported again: in sync by itself.
    dynamodb_stand_in.put(table, items_of(ORDINARY, 1, deviceKey="APP#bad", pushToken="short"))
    assert materialize(instance, ORDINARY).success
    assert status(tenants, ORDINARY).stage == "in sync"


def test_a_store_that_can_not_be_scanned_fails_the_run_and_changes_nothing(
    spark: SparkSession, tenants: Tenants, table: str, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenants.activate(ORDINARY)
    begin_migration(tenants, [ORDINARY])
    monkeypatch.setenv("DYNAMODB_DEVICES_TABLE", "no-such-table")

    result = materialize(instance, ORDINARY)

    assert not result.success
    assert status(tenants, ORDINARY).stage == "importing"
    assert status(tenants, ORDINARY).scanned_at is None
    assert instance.get_materialized_partitions(dg.AssetKey("legacy_import")) == set()


def test_the_sensor_asks_once_for_all_that_were_started(
    tenants: Tenants, table: str, kept_instance: dg.DagsterInstance
) -> None:
    tenants.activate(ORDINARY, HUGE, EMPTY)
    kept_instance.add_dynamic_partitions("tenants", [str(one) for one in (ORDINARY, HUGE, EMPTY)])

    def asked() -> list[Mapping[str, str]]:
        context = dg.build_sensor_context(kept_instance, resources={"tenants": TenantsResource()})
        found = legacy_migration_sensor.evaluate_tick(context).run_requests or ()
        return [request.tags for request in found]

    assert asked() == []
    begin_migration(tenants, [ORDINARY, EMPTY])
    (tags,) = asked()
    ends = (tags["dagster/asset_partition_range_start"], tags["dagster/asset_partition_range_end"])
    assert ends == (str(ORDINARY), str(EMPTY))
    tenants.query(
        "INSERT INTO clientmgr.legacy_imports (customer_id, run_id, scanned_at, items) "
        "SELECT customer_id, 'r', now(), 0 FROM clientmgr.legacy_migrations"
    )
    assert asked() == []


def test_after_the_fallback_a_comparison_goes_on_every_night_without_moving_the_customer(
    spark: SparkSession,
    tenants: Tenants,
    table: str,
    dynamodb_stand_in: DynamoDbStandIn,
    instance: dg.DagsterInstance,
) -> None:
    tenants.activate(ORDINARY)
    dynamodb_stand_in.put(table, items_of(ORDINARY, 2))
    begin_migration(tenants, [ORDINARY])
    assert materialize(instance, ORDINARY).success
    settings = load_settings()
    with tenants.database.connect(Role.WRITER) as connection:
        advance(connection, AuditLogger.from_settings(settings), settings, ORDINARY, actor="test")
    dynamodb_stand_in.put(table, items_of(ORDINARY, 3))

    assert materialize(instance, ORDINARY).success

    found = status(tenants, ORDINARY)
    assert (found.stage, found.items, found.different) == ("postgres with fallback", 3, 0)
    assert tenants.query('SELECT count(*) FROM "tenant_11".devices') == [(3,)]
