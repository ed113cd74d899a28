"""`prune_event_log`: deletes old events of ours from Dagster's log, once a night."""

import dagster as dg
from dagster_postgres import PostgresEventLogStorage

from clientmgr_dagster.automation import SCHEDULES
from clientmgr_dagster.event_log import Ours, prune
from clientmgr_dagster.partitions import RETRIED
from clientmgr_dagster.policies import RETRY_POLICY
from clientmgr_dagster.resources import TenantsResource


@dg.op(retry_policy=RETRY_POLICY)
def delete_old_events(context: dg.OpExecutionContext, tenants: TenantsResource) -> None:
    """Delete our events older than DAGSTER_EVENT_RETENTION_DAYS, but never those that tell an asset's current state."""
    storage = context.instance.event_log_storage
    if not isinstance(storage, PostgresEventLogStorage):
        context.log.warning("the event log is not in PostgreSQL: nothing is deleted from it")
        return
    ours = Ours.of(context.repository_def, context.run)
    pruned = prune(storage.postgres_url, ours, keep_days=tenants.settings.dagster_event_retention_days)
    context.add_output_metadata(
        {
            "events_deleted": pruned.events,
            "check_results_deleted": pruned.check_results,
            "event_log_mb": round(pruned.bytes_left / 1024 / 1024, 1),
        }
    )


@dg.job(name="prune_event_log", description="Deletes old events of this code location from Dagster's own log.")
def prune_event_log_job() -> None:
    delete_old_events()


prune_event_log_schedule = dg.ScheduleDefinition(
    name="prune_event_log_schedule",
    job=prune_event_log_job,
    cron_schedule="30 3 * * *",
    tags=RETRIED,
    execution_timezone="UTC",
    default_status=SCHEDULES,
    description="Every night at 03:30 UTC.",
)
