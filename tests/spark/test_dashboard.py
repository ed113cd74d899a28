"""The dashboard's numbers: equal to plain SQL, a failed tenant told as such, history kept, questions answered."""

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from clientmgr.base.settings import Settings
from clientmgr_dagster.defs.tenant_metrics import checks
from clientmgr_dagster.defs.tenant_metrics.assets import dashboard_tenant_metrics, dashboard_tenant_metrics_history
from clientmgr_dagster.resources import TenantsResource
from clientmgr_dagster.spark.session import SparkResource
from tests.spark.calling import passes
from tests.spark.tenants import BROKEN, EMPTY, HUGE, ORDINARY, Tenants

REFERENCE = """
SELECT count(*), count(*) FILTER (WHERE push_enabled), count(*) FILTER (WHERE push_token_status = 'invalid'),
    count(DISTINCT contact_id), count(*) FILTER (WHERE contact_id IS NULL),
    count(*) FILTER (
        WHERE contact_id IS NULL AND greatest(orphaned_since, last_seen_at) < now() - interval '30 days'
    ),
    count(*) FILTER (WHERE created_at > now() - interval '24 hours'), max(updated_at)
FROM "tenant_{customer}".devices
"""
COLLECTED = """
SELECT devices, push_enabled, tokens_invalid, contacts, without_contact, orphans, created_24h, last_write_at
FROM clientmgr.dashboard_tenant_metrics WHERE customer_id = {customer}
"""


@pytest.fixture(autouse=True)
def _environment(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)


def collect(instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        [dashboard_tenant_metrics, dashboard_tenant_metrics_history],
        instance=instance,
        resources={"tenants": TenantsResource(), "spark": SparkResource()},
    )


def test_collects_what_sql_counts_records_who_failed_and_keeps_history(
    spark: SparkSession, tenants: Tenants, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_SLICE_MB", "1")  # the huge tenant is read in slices
    tenants.make_all(huge=6000)

    result = collect(instance)

    for customer in (ORDINARY, HUGE, EMPTY):
        expected = tenants.query(REFERENCE.format(customer=customer))
        assert tenants.query(COLLECTED.format(customer=customer)) == expected
    ((platforms, providers, share),) = tenants.query(
        "SELECT devices_by_platform, devices_by_provider, push_enabled_share FROM clientmgr.dashboard_tenant_metrics"
        " WHERE customer_id = 11"
    )
    assert platforms == {"ios": 66, "web": 67, "android": 67}
    assert providers == {"apple": 66, "vapid": 67, "fcm": 67}
    assert share == 0.8
    ((status, failure),) = tenants.query(
        "SELECT status, failure FROM clientmgr.dashboard_tenant_metrics WHERE customer_id = 14"
    )
    assert status == "failed"
    assert 'relation "tenant_14.devices" does not exist' in failure
    metadata = result.asset_materializations_for_node("dashboard_tenant_metrics")[0].metadata
    assert (metadata["dagster/row_count"].value, metadata["failed"].value) == (4, 1)
    assert "| 12 | `████████████████████████` | 6,000 |" in str(metadata["largest"].value)
    assert tenants.query("SELECT count(*) FROM clientmgr.dashboard_tenant_metrics_history") == [(4,)]
    assert tenants.query("SELECT customer_id FROM clientmgr.dashboard_never_written") == [(EMPTY,)]
    assert tenants.query("SELECT customer_id FROM clientmgr.dashboard_failed_tenants") == [(BROKEN,)]
    assert [row[0] for row in tenants.query("SELECT customer_id FROM clientmgr.dashboard_most_invalid_tokens")] == [
        ORDINARY,
        HUGE,
    ]
    assert passes(checks.history_complete)
    assert passes(checks.schemas_at_head)
    assert passes(checks.sync_within_tolerance), "nothing was compared, which is no failure"
    assert not passes(checks.every_tenant_counted)


def test_customers_still_read_from_the_legacy_store_count_no_orphans(
    spark: SparkSession, tenants: Tenants, instance: dg.DagsterInstance
) -> None:
    tenants.activate(ORDINARY, HUGE)
    tenants.add_devices(ORDINARY, 200)
    tenants.add_devices(HUGE, 200)
    tenants.leave_the_legacy_store(ORDINARY, left=False)

    collect(instance)

    assert tenants.query(
        "SELECT customer_id, devices, orphans > 0 FROM clientmgr.dashboard_tenant_metrics ORDER BY 1"
    ) == [(ORDINARY, 200, False), (HUGE, 200, True)]


def test_growth_is_measured_against_the_history(
    spark: SparkSession, tenants: Tenants, instance: dg.DagsterInstance
) -> None:
    tenants.activate(ORDINARY, EMPTY)
    tenants.add_devices(ORDINARY, 100)
    collect(instance)
    for days, less in ((1, 10), (7, 60)):
        tenants.query(
            f"""INSERT INTO clientmgr.dashboard_tenant_metrics_history
                (customer_id, collected_at, run_id, status, sync_status, devices)
            VALUES (11, now() - interval '{days} days 5 minutes', 'old', 'ok', 'not checked', {100 - less})"""
        )

    collect(instance)

    assert tenants.query("SELECT customer_id, growth_24h, growth_7d FROM clientmgr.dashboard_fastest_growth") == [
        (ORDINARY, 10, 60)
    ]
    assert tenants.query("SELECT count(*) FROM clientmgr.dashboard_tenant_metrics_history WHERE customer_id = 13") == [
        (2,)
    ]


def test_a_missing_schema_of_an_active_tenant_is_created_and_of_a_deleted_one_is_not(
    spark: SparkSession, tenants: Tenants, instance: dg.DagsterInstance
) -> None:
    tenants.activate(ORDINARY, EMPTY, HUGE)
    tenants.query('DROP SCHEMA "tenant_13" CASCADE')
    tenants.query('DROP SCHEMA "tenant_12" CASCADE')
    tenants.query("UPDATE clientmgr.tenants SET status = 'deleted' WHERE customer_id = 12")

    result = collect(instance)

    assert tenants.query("SELECT customer_id, status FROM clientmgr.dashboard_tenant_metrics ORDER BY 1") == [
        (ORDINARY, "ok"),
        (EMPTY, "ok"),
    ]
    metadata = result.asset_materializations_for_node("dashboard_tenant_metrics")[0].metadata
    assert metadata["schemas_created"].value == 1
    assert tenants.query('SELECT count(*) FROM "tenant_13".devices') == [(0,)]
    assert tenants.query("SELECT nspname FROM pg_namespace WHERE nspname = 'tenant_12'") == []
    assert tenants.query("SELECT status FROM clientmgr.tenants WHERE customer_id = 13") == [("active",)]


def test_a_tenant_behind_on_migrations_is_named(tenants: Tenants) -> None:
    tenants.activate(ORDINARY)
    assert passes(checks.schemas_at_head)
    tenants.query("UPDATE clientmgr.tenants SET schema_version = 0")

    assert not passes(checks.schemas_at_head)
    assert tenants.query("SELECT customer_id, behind_by > 0 FROM clientmgr.dashboard_behind_on_migrations") == [
        (ORDINARY, True)
    ]
