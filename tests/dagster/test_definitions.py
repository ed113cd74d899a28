"""The code location as a whole: it loads, and holds exactly what it should."""

import subprocess
import sys

import dagster as dg

from clientmgr.operations.daemon_health import READS
from clientmgr_dagster.definitions import defs
from clientmgr_dagster.policies import FRESHNESS, RETRY_POLICY


def test_holds_exactly_these_definitions() -> None:
    repository = defs.get_repository_def()
    graph = repository.asset_graph
    assert {key.to_user_string() for key in graph.get_all_asset_keys()} == {
        "audit_verification",
        "bigquery_deleted_contacts",
        "contact_deletion_messages",
        "contact_deletion_reconciliation",
        *(f"daemons/{name.replace('-', '_')}" for name in READS),
        "dashboard_tenant_metrics",
        "dashboard_tenant_metrics_history",
        "deleted_contacts",
        "devices",
        "dynamodb_devices",
        "orphan_candidates",
        "orphan_deletions",
        "tenant_reconciliation",
        "tenant_schema",
    }
    assert {f"{key.asset_key.to_user_string()}:{key.name}" for key in graph.asset_check_keys} == {
        "audit_verification:audit_log_intact",
        "contact_deletion_messages:every_deletion_published",
        "contact_deletion_reconciliation:nothing_missed_for_two_nights",
        "dashboard_tenant_metrics:every_tenant_counted",
        "dashboard_tenant_metrics:schemas_at_head",
        "dashboard_tenant_metrics:sync_within_tolerance",
        "dashboard_tenant_metrics_history:history_complete",
        "orphan_candidates:no_young_candidates",
        "tenant_reconciliation:nothing_disagrees",
    }
    assert {job.name for job in repository.get_all_jobs() if not job.name.startswith("__")} == {
        "account_deletion",
        "contact_deletion_job",
        "contact_deletion_reconciliation_job",
        "dashboard_job",
        "orphan_deletion_job",
        "prune_event_log",
    }
    assert {sensor.name for sensor in repository.sensor_defs} == {
        "account_deletion_sensor",
        "customer_activation_sensor",
        "daemon_health_sensor",
        "run_failure_sensor",
        "tenant_drift_sensor",
        "tenant_registry_sensor",
    }
    assert {schedule.name for schedule in repository.schedule_defs} == {
        "hourly_contact_deletion",
        "nightly_audit_verification",
        "nightly_contact_deletion_reconciliation",
        "nightly_dashboard",
        "nightly_orphan_deletion",
        "prune_event_log_schedule",
    }
    assert set(repository.get_top_level_resources()) == {"bigquery", "spark", "tenants"}


def test_lineage_goes_from_the_stores_to_the_results() -> None:
    graph = defs.get_repository_def().asset_graph
    parents = {
        key.to_user_string(): {parent.to_user_string() for parent in graph.get(key).parent_keys}
        for key in graph.get_all_asset_keys()
        if graph.get(key).group_name != "operations"
    }
    assert parents == {
        "tenant_schema": set(),
        "tenant_reconciliation": set(),
        "devices": {"tenant_schema"},
        "bigquery_deleted_contacts": set(),
        "dynamodb_devices": set(),
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


def test_every_step_is_retried_in_the_same_way() -> None:
    repository = defs.get_repository_def()
    steps = {one.op.name: one.op.retry_policy for one in repository.assets_defs_by_key.values() if one.is_executable}
    for job in ("account_deletion", "prune_event_log"):
        ops = [node.definition for node in repository.get_job(job).nodes]
        steps |= {op.name: op.retry_policy for op in ops if isinstance(op, dg.OpDefinition)}

    without = {name for name, policy in steps.items() if policy is None}
    assert without == {"tenant_reconciliation"}, "its sensor asks again, after a growing pause"
    assert {policy for policy in steps.values() if policy is not None} == {RETRY_POLICY}
    assert len(steps) > 8


def test_whatever_a_schedule_computes_is_late_after_the_same_time() -> None:
    graph = defs.get_repository_def().asset_graph
    policies = {key.to_user_string(): graph.get(key).freshness_policy for key in graph.get_all_asset_keys()}
    assert {name: policy for name, policy in policies.items() if policy is not None} == dict.fromkeys(
        [
            "audit_verification",
            "contact_deletion_messages",
            "contact_deletion_reconciliation",
            "dashboard_tenant_metrics",
            "dashboard_tenant_metrics_history",
            "deleted_contacts",
            "orphan_candidates",
            "orphan_deletions",
        ],
        FRESHNESS,
    )


def test_loads_in_a_fresh_interpreter_without_a_database() -> None:
    code = "from clientmgr_dagster.definitions import defs; defs.get_repository_def().load_all_definitions()"
    result = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_sparks_workers_do_not_import_dagster() -> None:
    """They import what they run, once each: Dagster alone would take them seconds."""
    code = (
        "import sys; import clientmgr_dagster.spark.tenant_source, clientmgr_dagster.spark.results_writer; "
        "sys.exit('dagster' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
