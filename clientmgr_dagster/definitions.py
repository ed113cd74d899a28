"""The code location: everything in `defs/`, with the resources that tests replace."""

import dagster as dg

from clientmgr_dagster.defs.contact_deletion.assets import contact_deletion_messages, deleted_contacts
from clientmgr_dagster.defs.contact_deletion.checks import every_deletion_published
from clientmgr_dagster.defs.contact_deletion.schedules import contact_deletion_job, hourly_contact_deletion
from clientmgr_dagster.defs.operations.audit_verification import audit_verification, nightly_audit_verification
from clientmgr_dagster.defs.operations.daemon_health import daemon_assets, daemon_health_sensor
from clientmgr_dagster.defs.operations.failures import run_failure_sensor
from clientmgr_dagster.defs.operations.pruning import prune_event_log_job, prune_event_log_schedule
from clientmgr_dagster.defs.orphans.assets import orphans
from clientmgr_dagster.defs.orphans.schedules import nightly_orphan_deletion, orphan_deletion_job
from clientmgr_dagster.defs.sources import SOURCES
from clientmgr_dagster.defs.tenancy.account_deletion import account_deletion_job
from clientmgr_dagster.defs.tenancy.assets import tenant_schema
from clientmgr_dagster.defs.tenancy.message_sensors import account_deletion_sensor, customer_activation_sensor
from clientmgr_dagster.defs.tenancy.reconciliation import tenant_drift_sensor, tenant_reconciliation
from clientmgr_dagster.defs.tenancy.sensors import tenant_registry_sensor
from clientmgr_dagster.defs.tenant_metrics.assets import dashboard_tenant_metrics, dashboard_tenant_metrics_history
from clientmgr_dagster.defs.tenant_metrics.checks import (
    every_tenant_counted,
    history_complete,
    schemas_at_head,
    sync_within_tolerance,
)
from clientmgr_dagster.defs.tenant_metrics.schedules import dashboard_job, nightly_dashboard
from clientmgr_dagster.resources import TenantsResource
from clientmgr_dagster.spark.session import SparkResource


def build_definitions(**resources: object) -> dg.Definitions:
    """The definitions, with any resource replaced by name."""
    return dg.Definitions(
        assets=[
            *SOURCES,
            tenant_schema,
            tenant_reconciliation,
            deleted_contacts,
            contact_deletion_messages,
            orphans,
            dashboard_tenant_metrics,
            dashboard_tenant_metrics_history,
            audit_verification,
            *daemon_assets,
        ],
        asset_checks=[
            every_deletion_published,
            every_tenant_counted,
            schemas_at_head,
            sync_within_tolerance,
            history_complete,
        ],
        jobs=[account_deletion_job, contact_deletion_job, orphan_deletion_job, dashboard_job, prune_event_log_job],
        schedules=[
            hourly_contact_deletion,
            nightly_orphan_deletion,
            nightly_dashboard,
            nightly_audit_verification,
            prune_event_log_schedule,
        ],
        sensors=[
            tenant_registry_sensor,
            customer_activation_sensor,
            account_deletion_sensor,
            tenant_drift_sensor,
            daemon_health_sensor,
            run_failure_sensor,
        ],
        resources={"tenants": TenantsResource(), "spark": SparkResource(), **resources},
        # A process per step would be a JVM per step.
        executor=dg.in_process_executor,
    )


defs = build_definitions()
