"""The code location as a whole: it loads, and holds exactly what it should."""

import itertools
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError
from pyspark.sql import worker

from clientmgr.base.errors import SettingsError
from clientmgr.operations.nightly_jobs import DAGSTER_JOBS
from clientmgr_dagster import spark
from clientmgr_dagster.chunks import requests_for_all
from clientmgr_dagster.definitions import defs
from clientmgr_dagster.defs.lineage.daemons import daemon_assets
from clientmgr_dagster.partitions import LIFECYCLE_TAGS, PARTITIONS, tenants_partitions
from clientmgr_dagster.policies import (
    DAEMON_FRESHNESS,
    HOURLY_FRESHNESS,
    NIGHTLY_FRESHNESS,
    RETRY_POLICY,
    SWEEP_FRESHNESS,
    RetryWhereItHelps,
)
from clientmgr_dagster.spark.workers.nursery import IMPORTED

DAEMONS = [spec.key.to_user_string() for spec in daemon_assets]
NO_TABLE = {*DAEMONS, "tenant_reconciliation"}
"""A daemon's tables are assets of their own."""

DELETION_CHAIN = ("deleted_contacts", "contact_deletion_messages", "daemons/contact_deletion", "devices", "audit_log")


def test_holds_exactly_these_definitions() -> None:
    repository = defs.get_repository_def()
    graph = repository.asset_graph
    assert {key.to_user_string() for key in graph.get_all_asset_keys()} == {
        "audit_log",
        "audit_verification",
        "bigquery_deleted_contacts",
        "contact_deletion_messages",
        "contact_deletion_reconciliation",
        *DAEMONS,
        "dashboard_tenant_metrics",
        "dashboard_tenant_metrics_history",
        "deleted_contacts",
        "device_files",
        "devices",
        "dynamodb_devices",
        "erasure_sweeps",
        "legacy_devices",
        "legacy_import",
        "live_positions",
        "migration_stage",
        "orphan_candidates",
        "orphan_deletions",
        "telemetry_stream",
        "tenant_reconciliation",
        "tenant_schema",
    }
    assert {f"{key.asset_key.to_user_string()}:{key.name}" for key in graph.asset_check_keys} == {
        "audit_verification:audit_log_intact",
        *(f"{name}:gets_on" for name in DAEMONS),
        "contact_deletion_messages:every_deletion_published",
        "contact_deletion_reconciliation:nothing_missed_for_two_nights",
        "dashboard_tenant_metrics:every_tenant_counted",
        "dashboard_tenant_metrics:schemas_at_head",
        "dashboard_tenant_metrics:sync_within_tolerance",
        "dashboard_tenant_metrics_history:history_complete",
        "deleted_contacts:nothing_from_the_future",
        "legacy_import:in_sync",
        "orphan_candidates:no_young_candidates",
        "tenant_reconciliation:nothing_disagrees",
    }
    assert {job.name for job in repository.get_all_jobs() if not job.name.startswith("__")} == {
        "account_deletion",
        "audit_verification_job",
        "contact_deletion_job",
        "contact_deletion_reconciliation_job",
        "dashboard_job",
        "legacy_migration_job",
        "orphan_deletion_job",
        "prune_event_log",
        "tenant_reconciliation_job",
        "tenant_schema_job",
    }
    assert {sensor.name for sensor in repository.sensor_defs} == {
        "account_deletion_sensor",
        "customer_activation_sensor",
        "daemon_health_sensor",
        "deletion_lineage_sensor",
        "legacy_migration_sensor",
        "lost_start_sensor",
        "run_failure_sensor",
        "tenant_drift_sensor",
        "tenant_registry_sensor",
    }
    assert {schedule.name for schedule in repository.schedule_defs} == {
        "hourly_contact_deletion",
        "nightly_audit_verification",
        "nightly_contact_deletion_reconciliation",
        "nightly_dashboard",
        "nightly_legacy_migration",
        "nightly_orphan_deletion",
        "prune_event_log_schedule",
    }
    scheduled = {schedule.job_name for schedule in repository.schedule_defs}
    assert scheduled == set(DAGSTER_JOBS.values()), "the dashboard lists them all"
    assert set(repository.get_top_level_resources()) == {"bigquery", "spark", "tenants"}


def test_lineage_goes_from_the_stores_to_the_results() -> None:
    graph = defs.get_repository_def().asset_graph
    parents = {
        key.to_user_string(): {parent.to_user_string() for parent in graph.get(key).parent_keys}
        for key in graph.get_all_asset_keys()
    }
    assert parents == {
        "daemons/writer": set(),
        "daemons/republisher": {"daemons/writer"},
        "daemons/push_token_status": set(),
        "daemons/contact_deletion": {"contact_deletion_messages"},
        "daemons/telemetry_writer": {"telemetry_stream"},
        "daemons/broadcast": {"telemetry_stream"},
        "daemons/device_mapper_batch": {"devices"},
        "daemons/device_mapper_tx": {"devices"},
        "telemetry_stream": set(),
        "live_positions": {"daemons/telemetry_writer"},
        "audit_log": {"devices", "orphan_deletions"},
        "audit_verification": {"audit_log"},
        "erasure_sweeps": {"devices"},
        "tenant_schema": set(),
        "tenant_reconciliation": set(),
        "devices": {
            "tenant_schema",
            "legacy_import",
            "device_files",
            "daemons/writer",
            "daemons/republisher",
            "daemons/push_token_status",
            "daemons/contact_deletion",
        },
        "bigquery_deleted_contacts": set(),
        "dynamodb_devices": set(),
        "device_files": {"tenant_schema"},
        "legacy_devices": {"dynamodb_devices"},
        "legacy_import": {"legacy_devices", "tenant_schema"},
        "migration_stage": {"legacy_import"},
        "deleted_contacts": {"bigquery_deleted_contacts"},
        "contact_deletion_messages": {"deleted_contacts"},
        "contact_deletion_reconciliation": {"bigquery_deleted_contacts", "devices"},
        "orphan_candidates": {"devices"},
        "orphan_deletions": {"orphan_candidates"},
        "dashboard_tenant_metrics": {"devices", "dynamodb_devices"},
        "dashboard_tenant_metrics_history": {"dashboard_tenant_metrics"},
    }


def test_a_chunk_of_tenants_is_one_run() -> None:
    graph = defs.get_repository_def().asset_graph
    keys = [key for key in graph.executable_asset_keys if graph.get(key).is_partitioned]
    assert len(keys) > 5
    for key in keys:
        policy = graph.get(key).backfill_policy
        assert policy is not None
        assert policy.max_partitions_per_run == 500, key


def test_every_step_is_retried_in_the_same_way_and_never_after_an_interrupt() -> None:
    repository = defs.get_repository_def()
    ops = [op for job in repository.get_all_jobs() for op in job.all_node_defs if isinstance(op, dg.OpDefinition)]
    checks = {f"{key.asset_key.to_python_identifier()}_{key.name}" for key in repository.asset_graph.asset_check_keys}
    # The checks of daemons are one op: looking is what it does, and its sensor looks again a minute later.
    steps = {op.name: op.retry_policy for op in ops if op.name not in checks | {"daemons_get_on"}}

    without = {name for name, policy in steps.items() if policy is None}
    assert without == {"tenant_reconciliation"}, "its sensor asks again, after a growing pause"
    assert {policy for policy in steps.values() if policy is not None} == {RETRY_POLICY}
    assert len(steps) > 8
    # By its class too: it compares as equal to Dagster's own, which starts an interrupted step again.
    assert {type(op.retry_policy) for op in ops} <= {RetryWhereItHelps, type(None)}


def test_a_nightly_run_whose_process_died_is_started_again_as_a_lifecycle_run_is() -> None:
    repository = defs.get_repository_def()
    asked = [*requests_for_all(["1"], name="n", moment="m"), *requests_for_all(["1", "2"], name="n", moment="m")]
    with dg.instance_for_test() as instance:
        instance.add_dynamic_partitions(PARTITIONS, ["1"])
        moment = datetime(2026, 11, 18, 5, 15, tzinfo=UTC)
        # Those that need a resource look into the settings first, and then ask as above.
        for schedule in repository.schedule_defs:
            if not schedule.required_resource_keys:
                with dg.build_schedule_context(instance, moment, repository_def=repository) as context:
                    asked += schedule.evaluate_tick(context).run_requests or ()
    assert len(asked) > 4
    assert {request.tags["dagster/max_retries"] for request in asked} == {LIFECYCLE_TAGS["dagster/max_retries"]}


@pytest.mark.parametrize(
    ("ended_by", "seen"),
    [
        (KeyboardInterrupt("stop"), KeyboardInterrupt),
        (DagsterExecutionInterruptedError("stop"), DagsterExecutionInterruptedError),
        (SettingsError("BIGQUERY_PROJECT: not set"), dg.Failure),
    ],
)
def test_a_step_is_not_begun_again_after_an_interrupt_or_what_no_attempt_can_mend(
    ended_by: BaseException, seen: type[BaseException]
) -> None:
    begun = []

    @dg.op(retry_policy=RETRY_POLICY)
    def work() -> None:
        begun.append(1)
        raise ended_by

    with pytest.raises(seen, match=str(ended_by)):
        dg.GraphDefinition("works", node_defs=[work]).execute_in_process()
    assert begun == [1]


def test_a_deletion_is_followed_from_tenant_to_tenant() -> None:
    """Every link is there for each tenant, and maps a tenant to itself."""
    graph = defs.get_repository_def().asset_graph
    chain = [dg.AssetKey(name.split("/")) for name in DELETION_CHAIN]
    assert all(graph.get(key).partitions_def == tenants_partitions for key in chain)
    assert all(before in graph.get(after).parent_keys for before, after in itertools.pairwise(chain))


def test_every_asset_says_all_that_there_is_to_say_of_it() -> None:
    repository = defs.get_repository_def()
    graph = repository.asset_graph
    not_ours = {"bigquery_deleted_contacts", "dynamodb_devices", "telemetry_stream"}
    missing = []
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        says = {
            "an owner": node.owners,
            "a description": node.description,
            "a kind": node.kinds,
            "a group": node.group_name != "default",
            "a code version": node.code_version or key.to_user_string() in not_ours,
            "its table": "dagster/table_name" in node.metadata or key.to_user_string() in {*not_ours, *NO_TABLE},
            "its columns": "dagster/table_name" not in node.metadata or "dagster/column_schema" in node.metadata,
            "the dashboard": not node.is_partitioned or "dashboard" in node.metadata,
        }
        missing += [f"{key.to_user_string()}: {what}" for what, is_said in says.items() if not is_said]
    assert missing == []
    assert "Redis" in (graph.get(dg.AssetKey(["daemons", "broadcast"])).description or ""), "names stay as they are"


def test_whatever_the_ui_lists_has_a_description_and_schedules_their_time_zone() -> None:
    repository = defs.get_repository_def()
    graph = repository.asset_graph
    described = {
        **{key.to_user_string(): graph.get_check_spec(key).description for key in graph.asset_check_keys},
        **{job.name: job.description for job in repository.get_all_jobs() if not job.name.startswith("__")},
        **{schedule.name: schedule.description for schedule in repository.schedule_defs},
        **{sensor.name: sensor.description for sensor in repository.sensor_defs},
        **{name: one.description for name, one in repository.get_top_level_resources().items()},
    }
    assert len(described) > 40
    assert [name for name, description in described.items() if not description] == []
    assert {schedule.execution_timezone for schedule in repository.schedule_defs} == {"UTC"}


def test_every_run_that_a_sensor_or_a_schedule_launches_has_a_job_with_a_name() -> None:
    repository = defs.get_repository_def()
    targets = {sensor.name: [target.job_name for target in sensor.targets] for sensor in repository.sensor_defs}
    assert {name for name, jobs in targets.items() if not jobs} == {
        "daemon_health_sensor",
        "deletion_lineage_sensor",
        "lost_start_sensor",
        "run_failure_sensor",
    }, "those launch nothing"
    jobs = {name for names in targets.values() for name in names} | {one.job_name for one in repository.schedule_defs}
    assert not [name for name in jobs if name.startswith("__")]


def test_what_must_not_run_after_a_failed_check_waits_for_it() -> None:
    graph = defs.get_repository_def().asset_graph
    blocking = {key.name for key in graph.asset_check_keys if graph.get(key).blocking}
    assert blocking == {"no_young_candidates", "nothing_from_the_future"}


def test_whatever_has_a_rhythm_is_late_after_its_time() -> None:
    graph = defs.get_repository_def().asset_graph
    policies = {key.to_user_string(): graph.get(key).freshness_policy for key in graph.get_all_asset_keys()}
    nightly = [
        "audit_verification",
        "contact_deletion_reconciliation",
        "dashboard_tenant_metrics",
        "dashboard_tenant_metrics_history",
        "orphan_candidates",
        "orphan_deletions",
    ]
    assert {name: policy for name, policy in policies.items() if policy is not None} == {
        **dict.fromkeys(nightly, NIGHTLY_FRESHNESS),
        **dict.fromkeys(["deleted_contacts", "contact_deletion_messages"], HOURLY_FRESHNESS),
        **dict.fromkeys(DAEMONS, DAEMON_FRESHNESS),
        "erasure_sweeps": SWEEP_FRESHNESS,
    }


def test_loads_in_a_fresh_interpreter_without_a_database() -> None:
    code = "from clientmgr_dagster.definitions import defs; defs.get_repository_def().load_all_definitions()"
    result = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_sparks_workers_are_forked_with_all_that_they_run_imported_and_without_dagster() -> None:
    own = {f"{spark.__name__}.{file.stem}" for file in files_of(spark) if "(DataSource):" in file.read_text()}
    sparks = {f"{worker.__name__}.{file.stem}" for file in files_of(worker)}
    for_other_work = {"__init__", "utils", "analyze_udtf", "python_streaming_sink_runner"}
    assert len(own) > 3
    assert own | sparks - {f"{worker.__name__}.{name}" for name in for_other_work} <= set(IMPORTED)
    # Dagster alone would take them seconds, and memory.
    code = f"import sys; import {', '.join(IMPORTED)}; print('dagster' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "False\n"


def files_of(package: ModuleType) -> list[Path]:
    return [file for folder in package.__path__ for file in Path(folder).glob("*.py")]
