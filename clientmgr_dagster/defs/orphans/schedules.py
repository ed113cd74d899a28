"""Every night: find and delete the orphans of all tenants, in chunks."""

from collections.abc import Iterator

import dagster as dg

from clientmgr_dagster.automation import SCHEDULES
from clientmgr_dagster.chunks import requests_for_every_tenant
from clientmgr_dagster.defs.orphans.assets import CANDIDATES, DELETIONS

orphan_deletion_job = dg.define_asset_job(
    "orphan_deletion_job",
    selection=dg.AssetSelection.assets(CANDIDATES, DELETIONS),
    description="Finds the orphans of a chunk of tenants and deletes those that still are.",
)


@dg.schedule(
    job=orphan_deletion_job,
    cron_schedule="15 2 * * *",
    execution_timezone="UTC",
    default_status=SCHEDULES,
    description="All tenants, every night at 02:15 UTC.",
)
def nightly_orphan_deletion(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
    yield from requests_for_every_tenant(context, name="orphans")
