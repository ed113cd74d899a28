"""Fails runs that were lost while they started: Dagster's monitoring asks for processes only once a run has started.

Such a run would otherwise wait for `start_timeout_seconds` (ten minutes) with its place in the queue and its pools.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

import dagster as dg

from clientmgr_dagster.automation import SENSORS
from clientmgr_dagster.runs.launcher import WatchedRunLauncher

LOOK_EVERY_S: Final = 20
LOST_AFTER: Final = timedelta(seconds=20)
"""The code server knows a run long before: from the moment that it is asked to start it."""


@dg.sensor(
    minimum_interval_seconds=LOOK_EVERY_S,
    default_status=SENSORS,
    description="Fails runs whose process was gone before they had started. They are then started again.",
)
def lost_start_sensor(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    instance = context.instance
    launcher = instance.run_launcher
    if not isinstance(launcher, WatchedRunLauncher):
        return dg.SkipReason("this instance has another run launcher, which knows its runs")
    starting = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTING], updated_before=datetime.now(UTC) - LOST_AFTER)
    lost = [run for run in instance.get_runs(starting) if launcher.lost_while_it_started(run)]
    for run in lost:
        context.log.warning(f"run {run.run_id} of {run.job_name} was lost while it started")
        instance.report_run_failed(run, "The run's process was gone before the run had started.")
    return dg.SkipReason(f"{len(lost)} runs were lost while they started" if lost else "no run was lost at its start")
