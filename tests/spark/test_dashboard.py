"""The dashboard's numbers: equal to plain SQL, a failed tenant told as such, history kept, questions answered."""

from datetime import UTC, datetime

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.settings import Settings
from clientmgr_dagster.defs.tenant_metrics import checks
from clientmgr_dagster.defs.tenant_metrics.assets import tenant_metrics
from clientmgr_dagster.defs.tenant_metrics.schedules import nightly_dashboard
from clientmgr_dagster.partitions import RANGE_END, RANGE_START, partition_range
from clientmgr_dagster.resources import TenantsResource
from clientmgr_dagster.spark.session import SparkResource
from tests.spark.calling import passes, requests_of
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


def collect(instance: dg.DagsterInstance, *customers: CustomerId) -> dg.ExecuteInProcessResult:
    """Everybody, or the chunk from the first to the last of these."""
    everybody = [ORDINARY, HUGE, EMPTY, BROKEN]
    instance.add_dynamic_partitions("tenants", [str(one) for one in everybody])
    first, *_, last = customers or everybody
    return dg.materialize(
        [tenant_metrics],
        instance=instance,
        resources={"tenants": TenantsResource(), "spark": SparkResource()},
        tags=partition_range([str(first), str(last)]),
    )


def summary_of(result: dg.ExecuteInProcessResult) -> dict[str, object]:
    first = result.get_asset_observation_events()[0].asset_observation_data.asset_observation
    return {name: value.value for name, value in first.metadata.items()}


def materialised(result: dg.ExecuteInProcessResult) -> list[tuple[str, str | None]]:
    events = [one.materialization for one in result.get_asset_materialization_events()]
    return [(one.asset_key.to_user_string().removeprefix("dashboard_tenant_"), one.partition) for one in events]


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
    summary = summary_of(result)
    assert (summary["tenants"], summary["failed"]) == (4, 1)
    assert "| 12 | `████████████████████████` | 6,000 |" in str(summary["by_tenant"])
    assert sorted(materialised(result)) == [
        (asset, key) for asset in ("metrics", "metrics_history") for key in ("11", "12", "13")
    ], "a tenant that could not be counted is not materialised"
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


def test_a_chunk_or_one_tenant_is_collected_and_the_rows_of_the_others_stay_as_they_are(
    spark: SparkSession, tenants: Tenants, instance: dg.DagsterInstance
) -> None:
    tenants.activate(ORDINARY, HUGE, EMPTY, BROKEN)
    collect(instance)
    rows = "SELECT customer_id, run_id FROM clientmgr.dashboard_tenant_metrics"
    before = dict(tenants.query(rows))
    for customer in (ORDINARY, HUGE, BROKEN):
        tenants.query(f'DROP SCHEMA "tenant_{customer}" CASCADE')

    result = collect(instance, HUGE, EMPTY)

    assert dict(tenants.query(rows)) == before | dict.fromkeys((HUGE, EMPTY), result.run_id)
    kept = "SELECT customer_id, count(*) FROM clientmgr.dashboard_tenant_metrics_history GROUP BY 1"
    assert dict(tenants.query(kept)) == {ORDINARY: 1, HUGE: 2, EMPTY: 2, BROKEN: 1}
    assert {key for _, key in materialised(result)} == {"12", "13"}
    schemas = {name for (name,) in tenants.query("SELECT nspname FROM pg_namespace WHERE nspname ~ '^tenant_'")}
    assert schemas == {"tenant_12", "tenant_13"}, "another chunk restores its own"
    assert passes(checks.history_complete)


def test_the_schedule_asks_for_chunks_and_for_one_run_where_dynamodb_is_compared(
    kept_instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_instance.add_dynamic_partitions("tenants", [str(number) for number in range(1, 1202)])

    def ranges() -> list[tuple[str, str]]:
        moment = datetime(2026, 11, 16, 4, 15, tzinfo=UTC)
        with dg.build_schedule_context(
            instance=kept_instance, scheduled_execution_time=moment, resources={"tenants": TenantsResource()}
        ) as context:
            requests = requests_of(nightly_dashboard, context)
        return [(one.tags[RANGE_START], one.tags[RANGE_END]) for one in requests if isinstance(one, dg.RunRequest)]

    assert ranges() == [("1", "500"), ("501", "1000"), ("1001", "1201")]
    monkeypatch.setenv("SYNC_VALIDATION", "on")
    assert ranges() == [("1", "1201")], "each run would scan all of DynamoDB's table"


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
    assert summary_of(result)["schemas_created"] == 1
    assert {key for _, key in materialised(result)} == {"11", "13"}, "who is not active is not materialised"
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
