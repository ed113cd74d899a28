"""`prune_event_log`: deletes old events from Dagster's log, once a night."""

import dagster as dg

from clientmgr.operations.dagster_addresses import dagster_database_url
from clientmgr_dagster.event_log import prune
from clientmgr_dagster.partitions import RETRIED
from clientmgr_dagster.policies import RETRY_POLICY
from clientmgr_dagster.resources import TenantsResource


@dg.op(retry_policy=RETRY_POLICY)
def delete_old_events(context: dg.OpExecutionContext, tenants: TenantsResource) -> None:
    """Delete events older than DAGSTER_EVENT_RETENTION_DAYS, but never those that define an asset's current state."""
    settings = tenants.settings
    pruned = prune(dagster_database_url(settings), keep_days=settings.dagster_event_retention_days)
    context.add_output_metadata(
        {
            "events_deleted": pruned.events,
            "check_results_deleted": pruned.check_results,
            "event_log_mb": round(pruned.bytes_left / 1024 / 1024, 1),
        }
    )


@dg.job(name="prune_event_log", description="Deletes old events from Dagster's own log.")
def prune_event_log_job() -> None:
    delete_old_events()


prune_event_log_schedule = dg.ScheduleDefinition(
    name="prune_event_log_schedule",
    job=prune_event_log_job,
    cron_schedule="30 3 * * *",
    tags=RETRIED,
    default_status=dg.DefaultScheduleStatus.RUNNING,
)
