"""Every hour: fetch and publish what customers deleted. Every night: look for what that missed. Always in chunks."""

from collections.abc import Iterator

import dagster as dg

from clientmgr_dagster.automation import SCHEDULES
from clientmgr_dagster.chunks import requests_for_every_tenant
from clientmgr_dagster.defs.contact_deletion.assets import FOUND, MESSAGES
from clientmgr_dagster.defs.contact_deletion.reconciliation import contact_deletion_reconciliation
from clientmgr_dagster.resources import TenantsResource

contact_deletion_job = dg.define_asset_job(
    "contact_deletion_job",
    selection=dg.AssetSelection.assets(FOUND, MESSAGES),
    description="Fetches what a chunk of tenants deleted in BigQuery, and publishes it.",
)


contact_deletion_reconciliation_job = dg.define_asset_job(
    "contact_deletion_reconciliation_job",
    selection=dg.AssetSelection.assets(contact_deletion_reconciliation),
    description="Looks for contacts of a chunk of tenants that are deleted in BigQuery and still have devices here.",
)


@dg.schedule(
    job=contact_deletion_job,
    cron_schedule="45 * * * *",
    execution_timezone="UTC",
    default_status=SCHEDULES,
    description="All tenants, every hour; skipped while BIGQUERY_PROJECT is not set.",
)
def hourly_contact_deletion(
    context: dg.ScheduleEvaluationContext, tenants: TenantsResource
) -> Iterator[dg.RunRequest | dg.SkipReason]:
    yield from _requests(context, tenants, name="contact-deletion")


@dg.schedule(
    job=contact_deletion_reconciliation_job,
    # Half an hour after an hourly run, so that the worker has done what that published.
    cron_schedule="15 3 * * *",
    execution_timezone="UTC",
    default_status=SCHEDULES,
    description="All tenants, every night at 03:15 UTC; skipped while BIGQUERY_PROJECT is not set.",
)
def nightly_contact_deletion_reconciliation(
    context: dg.ScheduleEvaluationContext, tenants: TenantsResource
) -> Iterator[dg.RunRequest | dg.SkipReason]:
    yield from _requests(context, tenants, name="contact-deletion-reconciliation")


def _requests(
    context: dg.ScheduleEvaluationContext, tenants: TenantsResource, *, name: str
) -> Iterator[dg.RunRequest | dg.SkipReason]:
    if not tenants.settings.bigquery_project:
        yield dg.SkipReason("BIGQUERY_PROJECT is not set: there is nothing to fetch deletions from")
    else:
        yield from requests_for_every_tenant(context, name=name)
