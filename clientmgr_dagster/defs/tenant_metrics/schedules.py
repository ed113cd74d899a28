"""Every night, after the deletions: collect the dashboard's numbers of all tenants and keep them."""

from collections.abc import Iterator

import dagster as dg

from clientmgr_dagster.automation import SCHEDULES
from clientmgr_dagster.chunks import requests_for_every_tenant
from clientmgr_dagster.defs.tenant_metrics.checks import HISTORY, METRICS
from clientmgr_dagster.resources import TenantsResource
from clientmgr_dagster.spark.sync import is_wanted

dashboard_job = dg.define_asset_job(
    "dashboard_job",
    selection=dg.AssetSelection.assets(METRICS, HISTORY),
    description="Collects the numbers of a chunk of tenants in one Spark pass, and adds them to the history.",
)


@dg.schedule(
    job=dashboard_job,
    cron_schedule="15 4 * * *",
    execution_timezone="UTC",
    default_status=SCHEDULES,
    description="All tenants, every night at 04:15 UTC.",
)
def nightly_dashboard(
    context: dg.ScheduleEvaluationContext, tenants: TenantsResource
) -> Iterator[dg.RunRequest | dg.SkipReason]:
    # A comparison scans all of DynamoDB's table, whoever it is for: chunks would pay for it again and again.
    yield from requests_for_every_tenant(context, name="dashboard", in_one_run=is_wanted(tenants.settings))
