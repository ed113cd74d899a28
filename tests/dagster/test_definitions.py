"""The code location as a whole: it loads, and holds exactly what it should."""

import subprocess
import sys

from clientmgr_dagster.definitions import defs


def test_holds_exactly_these_definitions() -> None:
    repository = defs.get_repository_def()
    assert {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()} == {
        "daemons/contact_deletion",
        "daemons/device_mapper_batch",
        "daemons/device_mapper_tx",
        "daemons/push_token_status",
        "daemons/republisher",
        "daemons/writer",
        "tenant_reconciliation",
        "tenant_schema",
    }
    assert {job.name for job in repository.get_all_jobs() if not job.name.startswith("__")} == {
        "account_deletion",
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
    assert {schedule.name for schedule in repository.schedule_defs} == {"prune_event_log_schedule"}
    assert set(repository.get_top_level_resources()) == {"tenants"}


def test_loads_in_a_fresh_interpreter_without_a_database() -> None:
    code = "from clientmgr_dagster.definitions import defs; defs.get_repository_def().load_all_definitions()"
    result = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
