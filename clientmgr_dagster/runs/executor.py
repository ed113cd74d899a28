"""The executor of all jobs: Dagster's own, in one process, which is watched while it works."""

from collections.abc import Iterator

import dagster as dg
from dagster._core.definitions.executor_definition import IN_PROC_CONFIG
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode
from dagster._core.executor.in_process import InProcessExecutor

from clientmgr_dagster.runs.watch import watched


class WatchedExecutor(InProcessExecutor):
    """Executes all steps in this process, as Dagster's own does."""

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[dg.DagsterEvent]:
        with watched(plan_context.instance, plan_context.run_id):
            yield from super().execute(plan_context, execution_plan)


# Under the name of Dagster's own, so that what people write in a run's config stays valid.
@dg.executor(name="in_process", config_schema=IN_PROC_CONFIG)
def watched_executor(init_context: dg.InitExecutorContext) -> WatchedExecutor:
    retries = RetryMode.from_config(init_context.executor_config["retries"])  # type: ignore[arg-type]
    return WatchedExecutor(retries or RetryMode.ENABLED)
