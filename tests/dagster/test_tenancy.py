"""`tenant_schema` and the sensor beside it, on a real registry and a real (ephemeral) Dagster instance."""

import time

import dagster as dg
import psycopg
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.definitions.selector import PartitionRangeSelector, PartitionsByAssetSelector, PartitionsSelector
from dagster._core.execution.api import execute_run  # what Dagster's launcher calls, for a run that was queued
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill  # what the UI stores for a backfill

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.tenants.schema_manager import TenantSchemaManager
from clientmgr_dagster.definitions import build_definitions
from clientmgr_dagster.defs.tenancy.assets import tenant_schema
from clientmgr_dagster.defs.tenancy.sensors import tenant_registry_sensor
from clientmgr_dagster.partitions import partition_range
from clientmgr_dagster.resources import TenantsResource


def evaluate(instance: dg.DagsterInstance) -> dg.SensorResult | dg.SkipReason:
    """One tick; what it asks for is done to the instance, as the daemon would."""
    with dg.build_sensor_context(instance=instance, resources={"tenants": TenantsResource()}) as context:
        result = tenant_registry_sensor(context)
    assert isinstance(result, (dg.SensorResult, dg.SkipReason))
    if isinstance(result, dg.SensorResult):
        for request in result.dynamic_partitions_requests or []:
            if isinstance(request, dg.AddDynamicPartitionsRequest):
                instance.add_dynamic_partitions("tenants", list(request.partition_keys))
            else:
                for key in request.partition_keys:
                    instance.delete_dynamic_partition("tenants", key)
    return result


def test_materialising_a_partition_brings_the_tenants_schema_to_the_head(
    database: Database, manager: TenantSchemaManager, instance: dg.DagsterInstance
) -> None:
    with database.connect(Role.OWNER) as connection:
        connection.execute("INSERT INTO clientmgr.tenants (customer_id, status) VALUES (5, 'activating')")
    instance.add_dynamic_partitions("tenants", ["5"])

    result = dg.materialize(
        [tenant_schema], partition_key="5", instance=instance, resources={"tenants": TenantsResource()}
    )

    (materialisation,) = result.asset_materializations_for_node("tenant_schema")
    metadata = materialisation.metadata
    assert metadata["schema_version"].value == manager.head_version
    assert metadata["migrated_now"].value == 1
    assert set(metadata) == {"schema_version", "migrated_now"}, "nothing is counted"
    with database.connect(Role.READER) as connection:
        connection.execute('SELECT * FROM "tenant_5".devices')


@pytest.mark.parametrize("key", ["404", "1; drop schema x"])
def test_a_partition_that_is_no_registered_tenant_fails_and_creates_nothing(
    database: Database, settings: Settings, instance: dg.DagsterInstance, key: str
) -> None:
    instance.add_dynamic_partitions("tenants", [key])

    result = dg.materialize(
        [tenant_schema],
        partition_key=key,
        instance=instance,
        resources={"tenants": TenantsResource()},
        raise_on_error=False,
    )

    assert not result.success
    with database.connect(Role.READER) as connection:
        assert connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'tenant%'").fetchone() == (0,)


def test_a_tenant_that_fails_does_not_hide_that_the_others_of_its_run_are_done(
    database: Database, settings: Settings, instance: dg.DagsterInstance
) -> None:
    with database.connect(Role.OWNER) as connection:
        connection.execute("INSERT INTO clientmgr.tenants SELECT n, 'activating' FROM generate_series(5, 7) AS n")
        connection.execute('CREATE SCHEMA "tenant_6"')
    instance.add_dynamic_partitions("tenants", ["5", "6", "7"])
    job = build_definitions().resolve_implicit_global_asset_job_def()
    run = instance.create_run_for_job(
        job,
        run_config={"execution": {"config": {"retries": {"disabled": {}}}}},
        tags=partition_range(["5", "7"]),
        asset_selection={tenant_schema.key},
    )

    result = execute_run(InMemoryJob(job), run, instance, raise_on_error=False)

    assert not result.success
    assert instance.get_materialized_partitions(tenant_schema.key) == {"5", "7"}


def test_new_tenants_become_partitions_with_one_run_for_all(
    manager: TenantSchemaManager, instance: dg.DagsterInstance
) -> None:
    manager.activate([30, 4, 200], actor="test")

    result = evaluate(instance)

    assert instance.get_dynamic_partitions("tenants") == ["4", "30", "200"]
    assert isinstance(result, dg.SensorResult)
    (run,) = result.run_requests or []
    assert run.tags["dagster/asset_partition_range_start"] == "4"
    assert run.tags["dagster/asset_partition_range_end"] == "200"
    assert isinstance(evaluate(instance), dg.SkipReason)


def test_a_deleted_tenant_loses_its_partition_and_a_returning_one_gets_a_run_of_its_own(
    manager: TenantSchemaManager, instance: dg.DagsterInstance
) -> None:
    manager.activate([4], actor="test")
    first = evaluate(instance)
    manager.delete(4, actor="test")
    evaluate(instance)
    assert instance.get_dynamic_partitions("tenants") == []

    manager.activate([4], actor="test")
    second = evaluate(instance)

    assert isinstance(first, dg.SensorResult)
    assert isinstance(second, dg.SensorResult)
    keys = [request.run_key for result in (first, second) for request in result.run_requests or []]
    assert len(set(keys)) == 2
    assert instance.get_dynamic_partitions("tenants") == ["4"]


def test_a_registry_that_can_not_be_read_is_never_taken_for_an_empty_one(
    database: Database, manager: TenantSchemaManager, instance: dg.DagsterInstance
) -> None:
    manager.activate([4], actor="test")
    evaluate(instance)
    with database.connect(Role.OWNER) as connection:
        connection.execute("ALTER TABLE clientmgr.tenants RENAME TO tenants_away")

    with pytest.raises(psycopg.errors.UndefinedTable):
        evaluate(instance)
    assert instance.get_dynamic_partitions("tenants") == ["4"]


@pytest.mark.parametrize("tag", ["dagster/partition", "dagster/asset_partition_range_end"])
def test_a_deleted_tenants_key_stays_for_as_long_as_a_run_that_has_not_ended_names_it(
    manager: TenantSchemaManager, instance: dg.DagsterInstance, tag: str
) -> None:
    manager.activate([5, 6], actor="test")
    evaluate(instance)
    job = build_definitions().resolve_job_def("orphan_deletion_job")
    other = {"dagster/asset_partition_range_start": "5"} if tag.endswith("end") else {}
    run = instance.create_run_for_job(job, tags={**other, tag: "6"})
    manager.delete(CustomerId(6), actor="test")

    assert isinstance(evaluate(instance), dg.SkipReason)
    assert instance.get_dynamic_partitions("tenants") == ["5", "6"]

    instance.report_run_canceled(run)
    evaluate(instance)
    assert instance.get_dynamic_partitions("tenants") == ["5"]


def test_a_deleted_tenants_key_stays_for_as_long_as_a_backfill_that_has_not_ended_is_to_do_it(
    manager: TenantSchemaManager, instance: dg.DagsterInstance
) -> None:
    manager.activate([5, 6, 7, 8], actor="test")
    evaluate(instance)
    target = PartitionsSelector(ranges=[PartitionRangeSelector(start="5", end="7")])
    with partition_loading_context(dynamic_partitions_store=instance):
        backfill = PartitionBackfill.from_partitions_by_assets(
            backfill_id="backfill",
            asset_graph=build_definitions().resolve_asset_graph(),
            backfill_timestamp=time.time(),
            tags={},
            dynamic_partitions_store=instance,
            partitions_by_assets=[PartitionsByAssetSelector(asset_key=tenant_schema.key, partitions=target)],
            title=None,
            description=None,
            run_config=None,
        )
    instance.add_backfill(backfill)
    for customer in (6, 8):
        manager.delete(CustomerId(customer), actor="test")

    evaluate(instance)
    assert instance.get_dynamic_partitions("tenants") == ["5", "6", "7"]

    instance.update_backfill(backfill._replace(status=BulkActionStatus.COMPLETED_SUCCESS))
    evaluate(instance)
    assert instance.get_dynamic_partitions("tenants") == ["5", "7"]
