"""The code location: everything in `defs/`, with the resources that tests replace."""

import dagster as dg

from clientmgr_dagster.defs.operations.daemon_health import daemon_assets, daemon_health_sensor
from clientmgr_dagster.defs.operations.failures import run_failure_sensor
from clientmgr_dagster.defs.operations.pruning import prune_event_log_job, prune_event_log_schedule
from clientmgr_dagster.defs.tenancy.account_deletion import account_deletion_job
from clientmgr_dagster.defs.tenancy.assets import tenant_schema
from clientmgr_dagster.defs.tenancy.message_sensors import account_deletion_sensor, customer_activation_sensor
from clientmgr_dagster.defs.tenancy.reconciliation import tenant_drift_sensor, tenant_reconciliation
from clientmgr_dagster.defs.tenancy.sensors import tenant_registry_sensor
from clientmgr_dagster.resources import TenantsResource


def build_definitions(**resources: object) -> dg.Definitions:
    """The definitions, with any resource replaced by name."""
    return dg.Definitions(
        assets=[tenant_schema, tenant_reconciliation, *daemon_assets],
        jobs=[account_deletion_job, prune_event_log_job],
        schedules=[prune_event_log_schedule],
        sensors=[
            tenant_registry_sensor,
            customer_activation_sensor,
            account_deletion_sensor,
            tenant_drift_sensor,
            daemon_health_sensor,
            run_failure_sensor,
        ],
        resources={"tenants": TenantsResource(), **resources},
        # A process per step would be a JVM per step.
        executor=dg.in_process_executor,
    )


defs = build_definitions()
