"""Every night, after the deletions: collect the dashboard's numbers and keep them."""

import dagster as dg

from clientmgr_dagster.automation import SCHEDULES
from clientmgr_dagster.defs.tenant_metrics.assets import dashboard_tenant_metrics, dashboard_tenant_metrics_history

dashboard_job = dg.define_asset_job(
    "dashboard_job",
    selection=dg.AssetSelection.assets(dashboard_tenant_metrics, dashboard_tenant_metrics_history),
    description="Collects every tenant's numbers in one Spark pass, and adds them to the history.",
)

nightly_dashboard = dg.ScheduleDefinition(
    name="nightly_dashboard",
    job=dashboard_job,
    cron_schedule="15 4 * * *",
    execution_timezone="UTC",
    default_status=SCHEDULES,
    description="Every night at 04:15 UTC.",
)
