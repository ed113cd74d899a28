"""The reconciler in Dagster: asked for when there is something to repair, and telling what it did."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.contracts.lifecycle import TenantRequest
from clientmgr.contracts.topics import ACCOUNT_DELETION
from clientmgr.tenants.schema_manager import TenantSchemaManager
from clientmgr_dagster.defs.tenancy.message_sensors import account_deletion_sensor
from clientmgr_dagster.defs.tenancy.reconciliation import (
    next_request,
    tenant_drift_sensor,
    tenant_reconciliation,
)
from clientmgr_dagster.resources import TenantsResource
from tests.dagster.rig import Rig, deletion, publish

Query = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def rig(instance: dg.DagsterInstance, settings: Settings) -> Rig:
    return Rig(instance)


def test_a_deletion_that_was_left_half_way_is_finished_with_its_partition(
    rig: Rig, manager: TenantSchemaManager, query: Query
) -> None:
    manager.activate([7], actor="test")
    rig.instance.add_dynamic_partitions("tenants", ["7"])
    query("UPDATE clientmgr.tenants SET status = 'deleting', updated_at = now() - interval '1 day'")
    query("UPDATE clientmgr.tenant_wishes SET wish = 'deleted'")

    rig.settle(tenant_drift_sensor)

    assert query("SELECT status FROM clientmgr.tenants") == [("deleted",)]
    assert rig.instance.get_dynamic_partitions("tenants") == []


def test_an_activation_whose_run_was_lost_is_finished_and_shown_as_materialised(
    rig: Rig, manager: TenantSchemaManager, query: Query
) -> None:
    manager.register([TenantRequest(CustomerId(7), "message", datetime.now(UTC))])
    rig.instance.add_dynamic_partitions("tenants", ["7"])
    query("UPDATE clientmgr.tenants SET updated_at = now() - interval '1 day'")

    rig.settle(tenant_drift_sensor)

    assert query("SELECT status FROM clientmgr.tenants") == [("active",)]
    assert rig.instance.get_materialized_partitions(dg.AssetKey("tenant_schema")) == {"7"}


def test_a_deletion_whose_run_failed_before_it_began_is_done(
    rig: Rig, manager: TenantSchemaManager, query: Query, database: Database, settings: Settings
) -> None:
    manager.register([TenantRequest(CustomerId(7), "message", datetime.fromtimestamp(1, UTC))])
    manager.migrate([7], actor="test")
    publish(database, settings, ACCOUNT_DELETION, deletion(7, 2000))
    rig.evaluate(account_deletion_sensor)
    query("UPDATE clientmgr.tenant_wishes SET updated_at = now() - interval '1 day'")

    rig.settle(tenant_drift_sensor)

    assert query("SELECT status FROM clientmgr.tenants") == [("deleted",)]


def test_it_reports_what_it_did_and_its_check_fails_for_what_is_left(
    instance: dg.DagsterInstance, manager: TenantSchemaManager, query: Query
) -> None:
    manager.activate([7], actor="test")
    query('DROP SCHEMA "tenant_7" CASCADE')
    query('CREATE SCHEMA "tenant_8"')
    query('CREATE TABLE "tenant_8".devices AS SELECT 1 AS x')
    query('ALTER SCHEMA "tenant_8" OWNER TO clientmgr_ddl')
    query('ALTER TABLE "tenant_8".devices OWNER TO clientmgr_ddl')

    result = dg.materialize([tenant_reconciliation], instance=instance, resources={"tenants": TenantsResource()})

    metadata = result.asset_materializations_for_node("tenant_reconciliation")[0].metadata
    assert (metadata["found"].value, metadata["repaired"].value, metadata["left"].value) == (2, 1, 1)
    assert "| 7 | schema missing | active at version 2 | created |" in str(metadata["repairs"].value)
    (check,) = result.get_asset_check_evaluations()
    assert not check.passed
    assert "| 8 | schema of nobody |" in str(check.metadata["left"].value)


def test_what_can_not_be_repaired_is_tried_again_ever_more_rarely() -> None:
    last, asked_at = None, []
    for now in range(0, 20_000, 20):
        request = next_request(last, "the same", now)
        if request is not None:
            last = request
            asked_at.append(now)
    assert asked_at == [0, 60, 180, 420, 900, 1860, 3780, 7380, 10_980, 14_580, 18_180]
    assert next_request(last, "another", 18_181) is not None


def test_drift_that_is_new_is_asked_for_at_once(rig: Rig, query: Query) -> None:
    query('CREATE SCHEMA "tenant_8"')
    query('CREATE TABLE "tenant_8".devices AS SELECT 1 AS x')
    assert rig.tick(tenant_drift_sensor)
    assert not rig.tick(tenant_drift_sensor)
    query('CREATE SCHEMA "tenant_9" AUTHORIZATION clientmgr_ddl')
    assert rig.tick(tenant_drift_sensor)
