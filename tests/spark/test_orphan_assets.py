"""`orphan_candidates` and `orphan_deletions` in Dagster: a chunk of tenants as one job, partial failures told."""

from datetime import UTC, datetime

import dagster as dg
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run  # what Dagster's launcher calls, for a run that was queued
from pydantic import ValidationError
from pyspark.sql import SparkSession

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.orphans.policy import OrphanPolicy
from clientmgr_dagster.chunks import requests_for_all
from clientmgr_dagster.definitions import build_definitions
from clientmgr_dagster.defs.orphans.assets import OrphanConfig, orphans
from clientmgr_dagster.defs.orphans.checks import NO_YOUNG_CANDIDATES, find_young
from clientmgr_dagster.defs.orphans.schedules import nightly_orphan_deletion
from clientmgr_dagster.defs.tenancy.sensors import tenant_registry_sensor
from clientmgr_dagster.partitions import partition_range
from clientmgr_dagster.resources import TenantsResource
from clientmgr_dagster.spark.session import SparkResource
from tests.dagster.rig import Rig
from tests.spark.calling import requests_of
from tests.spark.tenants import BROKEN, EMPTY, HUGE, ORDINARY, Tenants

REFERENCE = """
SELECT count(*) FROM "tenant_{customer}".devices
WHERE contact_id IS NULL AND greatest(orphaned_since, last_seen_at) < now() - interval '30 days'
"""


@pytest.fixture(autouse=True)
def _environment(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)


def materialize(
    instance: dg.DagsterInstance, first: object, last: object, selection: str = "*", **config: object
) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        [orphans],
        instance=instance,
        selection=None if selection == "*" else [selection],
        resources={"tenants": TenantsResource(), "spark": SparkResource()},
        run_config={"ops": {"orphans": {"config": config}}},
        tags={"dagster/asset_partition_range_start": str(first), "dagster/asset_partition_range_end": str(last)},
        raise_on_error=False,
    )


def materialized(instance: dg.DagsterInstance, asset: str) -> set[str]:
    return set(instance.get_materialized_partitions(dg.AssetKey(asset)))


def test_a_chunk_is_found_and_deleted_and_a_broken_tenant_costs_only_itself(
    spark: SparkSession, database: Database, tenants: Tenants, instance: dg.DagsterInstance
) -> None:
    everybody = tenants.make_all(huge=3000)
    instance.add_dynamic_partitions("tenants", [str(customer) for customer in everybody])
    expected = {customer: tenants.query(REFERENCE.format(customer=customer))[0][0] for customer in (ORDINARY, HUGE)}
    assert expected[HUGE] > 400

    result = materialize(instance, ORDINARY, BROKEN)

    assert not result.success
    assert materialized(instance, "orphan_candidates") == {str(ORDINARY), str(HUGE), str(EMPTY)}
    assert materialized(instance, "orphan_deletions") == {str(ORDINARY), str(HUGE), str(EMPTY)}
    deleted = tenants.query("SELECT customer_id, deleted FROM clientmgr.orphan_deletion_results ORDER BY 1")
    assert deleted == [(ORDINARY, expected[ORDINARY]), (HUGE, expected[HUGE]), (EMPTY, 0)]
    assert tenants.query(REFERENCE.format(customer=HUGE)) == [(0,)]
    (failure,) = result.filter_events(lambda event: event.is_step_failure)
    report = failure.step_failure_data.user_failure_data
    assert report is not None
    assert "1 of 4 tenants" in str(report.description)
    assert 'relation "tenant_14.devices" does not exist' in str(report.metadata["tenants"].value)

    (check,) = result.get_asset_check_evaluations()
    assert (check.check_name, check.passed) == ("no_young_candidates", True)

    tenants.mend_tenant(BROKEN)
    assert materialize(instance, BROKEN, BROKEN).success
    assert materialized(instance, "orphan_deletions") == {str(customer) for customer in everybody}


def test_candidates_alone_can_be_looked_at_before_anything_is_deleted(
    spark: SparkSession, database: Database, tenants: Tenants, instance: dg.DagsterInstance
) -> None:
    tenants.activate(ORDINARY)
    tenants.add_devices(ORDINARY, 200)
    instance.add_dynamic_partitions("tenants", [str(ORDINARY)])
    ((expected,),) = tenants.query(REFERENCE.format(customer=ORDINARY))

    for _ in range(2):
        assert materialize(instance, ORDINARY, ORDINARY, "orphan_candidates").success

    assert tenants.query("SELECT count(*) FROM clientmgr.orphan_candidates") == [(expected,)]
    assert find_young(TenantsResource()) == {}

    dry = materialize(instance, ORDINARY, ORDINARY, "orphan_deletions", dry_run=True)
    assert dry.success
    assert tenants.query("SELECT outcome, candidates FROM clientmgr.orphan_deletion_results") == [("dry run", expected)]
    assert tenants.query('SELECT count(*) FROM "tenant_11".devices') == [(200,)]


def test_customers_still_read_from_the_legacy_store_are_left_out_and_it_shows(
    spark: SparkSession, tenants: Tenants, instance: dg.DagsterInstance
) -> None:
    tenants.activate(ORDINARY, HUGE)
    tenants.add_devices(ORDINARY, 200)
    tenants.add_devices(HUGE, 200)
    instance.add_dynamic_partitions("tenants", [str(ORDINARY), str(HUGE)])
    # Found while it was read from PostgreSQL alone.
    assert materialize(instance, ORDINARY, HUGE, "orphan_candidates").success
    tenants.leave_the_legacy_store(ORDINARY, left=False)

    result = materialize(instance, ORDINARY, HUGE)

    assert result.success
    assert tenants.query("SELECT count(*) FROM clientmgr.orphan_candidates") == [(0,)]
    assert tenants.query('SELECT count(*) FROM "tenant_11".devices') == [(200,)]
    assert tenants.query("SELECT customer_id, outcome FROM clientmgr.orphan_deletion_results ORDER BY 1") == [
        (ORDINARY, "legacy"),
        (HUGE, "deleted"),
    ]
    assert tenants.query("SELECT customer_id, candidates > 0 FROM clientmgr.orphan_searches ORDER BY 1") == [
        (ORDINARY, False),
        (HUGE, True),
    ]
    left_out = {
        str(event.partition)
        for event in result.filter_events(lambda event: event.is_step_materialization)
        if "legacy store" in str(event.step_materialization_data.materialization.metadata.get("left_out"))
    }
    assert left_out == {str(ORDINARY)}


def test_the_guard_fails_the_run_and_says_how_to_go_on(
    spark: SparkSession, tenants: Tenants, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORPHAN_GUARD_MINIMUM", "1")
    tenants.activate(ORDINARY)
    tenants.add_devices(ORDINARY, 200)
    instance.add_dynamic_partitions("tenants", [str(ORDINARY)])

    result = materialize(instance, ORDINARY, ORDINARY, max_share=0.01)

    assert not result.success
    assert tenants.query('SELECT count(*) FROM "tenant_11".devices') == [(200,)]
    assert materialize(instance, ORDINARY, ORDINARY, "orphan_deletions", max_share=0.9).success


@pytest.mark.parametrize(
    "config", [{"threshold_days": 0}, {"threshold_days": -1}, {"max_share": -0.1}, {"max_share": 1.1}]
)
def test_a_run_config_beyond_the_settings_limits_is_refused(config: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        OrphanConfig.model_validate(config)


def test_a_search_that_finds_devices_too_young_fails_its_check_and_deletes_nothing(
    spark: SparkSession, tenants: Tenants, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenants.activate(ORDINARY)
    tenants.add_devices(ORDINARY, 200)
    instance.add_dynamic_partitions("tenants", [str(ORDINARY)])
    # A mistake that search and deletion share, so that nobody but the check is left to notice.
    monkeypatch.setattr(OrphanPolicy, "orphaned_before", lambda _, now: now)

    result = materialize(instance, ORDINARY, ORDINARY)

    assert not result.success
    (check,) = result.get_asset_check_evaluations()
    assert not check.passed
    assert tenants.query('SELECT count(*) FROM "tenant_11".devices') == [(200,)]
    assert materialized(instance, "orphan_deletions") == set()


def test_the_check_runs_by_itself_too(tenants: Tenants, instance: dg.DagsterInstance, settings: Settings) -> None:
    tenants.activate(ORDINARY)
    result = dg.materialize(
        [orphans],
        instance=instance,
        selection=dg.AssetSelection.checks(NO_YOUNG_CANDIDATES.key),
        resources={"tenants": TenantsResource(), "spark": SparkResource()},
    )
    (check,) = result.get_asset_check_evaluations()
    assert check.passed


@pytest.mark.parametrize("leaving", [ORDINARY, EMPTY], ids=["the first", "the last"])
def test_a_tenant_deleted_before_its_run_starts_is_passed_over_and_the_others_are_done(
    spark: SparkSession, tenants: Tenants, instance: dg.DagsterInstance, leaving: CustomerId
) -> None:
    everybody = (ORDINARY, HUGE, EMPTY)
    tenants.activate(*everybody)
    tenants.add_devices(HUGE, 200)
    instance.add_dynamic_partitions("tenants", [str(customer) for customer in everybody])
    definitions = build_definitions()
    waiting = {
        job: instance.create_run_for_job(
            definitions.resolve_job_def(job), tags=partition_range([str(ORDINARY), str(EMPTY)]), asset_selection=chosen
        )
        for job, chosen in {
            "orphan_deletion_job": None,
            "contact_deletion_job": {dg.AssetKey("contact_deletion_messages")},
        }.items()
    }

    deleted = definitions.resolve_job_def("account_deletion").execute_in_process(
        run_config={"ops": {"delete_account": {"config": {"customer_id": str(leaving)}}}},
        instance=instance,
    )

    assert deleted.success
    for job, run in waiting.items():
        assert execute_run(InMemoryJob(definitions.resolve_job_def(job)), run, instance, raise_on_error=False).success
    staying = {str(customer) for customer in everybody} - {str(leaving)}
    assert materialized(instance, "orphan_deletions") == staying
    assert materialized(instance, "contact_deletion_messages") >= staying
    assert tenants.query("SELECT status FROM clientmgr.tenants WHERE customer_id = %s", (leaving,)) == [("deleted",)]
    rig = Rig(instance)
    rig.tick(tenant_registry_sensor)
    assert set(instance.get_dynamic_partitions("tenants")) == staying, "now nobody needs the key any more"


def test_the_schedule_asks_for_ranges_of_neighbours(kept_instance: dg.DagsterInstance) -> None:
    kept_instance.add_dynamic_partitions("tenants", [str(number) for number in range(1, 1002)])

    context = dg.build_schedule_context(
        instance=kept_instance, scheduled_execution_time=datetime(2026, 1, 1, tzinfo=UTC)
    )
    requests = requests_of(nightly_orphan_deletion, context)

    ranges = [
        (request.tags.get("dagster/asset_partition_range_start"), request.tags.get("dagster/asset_partition_range_end"))
        for request in requests
        if isinstance(request, dg.RunRequest)
    ]
    assert ranges == [("1", "500"), ("501", "1000"), (None, None)]
    assert isinstance(requests[-1], dg.RunRequest)
    assert requests[-1].partition_key == "1001"


def test_without_tenants_the_schedule_says_so(kept_instance: dg.DagsterInstance) -> None:
    context = dg.build_schedule_context(
        instance=kept_instance, scheduled_execution_time=datetime(2026, 1, 1, tzinfo=UTC)
    )

    assert [type(one) for one in requests_of(nightly_orphan_deletion, context)] == [dg.SkipReason]
    assert list(requests_for_all([], name="x", moment="y")) == []
