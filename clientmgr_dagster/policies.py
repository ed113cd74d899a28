"""What all definitions have in common: how a step is tried again, how many tenants a run takes, when an asset is late.

`PER_TENANT` is what every asset with a partition per tenant is declared with: `@dg.asset(**PER_TENANT, …)`.
"""

import sys
import warnings
from datetime import timedelta
from typing import Final, TypedDict

import dagster as dg

from clientmgr.base.errors import is_permanent
from clientmgr.operations.nightly_jobs import LATE_AFTER
from clientmgr_dagster.partitions import tenants_partitions

# Backfill and freshness policies have been in beta for years. Dagster's version is pinned: no warning at each start.
warnings.filterwarnings("ignore", category=dg.BetaWarning)


class RetryWhereItHelps(dg.RetryPolicy):
    """A retry policy for which an interrupt is final, and so is an error that no attempt can mend.

    Dagster asks the policy of a step that was interrupted too, and would start the step again: who terminated the run
    would see its work done all the same. And who forgot a setting would wait for three more attempts to hear of it.
    It asks for the delay first, while it handles the error, so that is where an error goes on its way. The run is then
    a FAILURE, or CANCELED if somebody asked for its end.
    """

    def calculate_delay(self, attempt_num: int) -> float:
        error = sys.exc_info()[1]
        if isinstance(error, Exception) and is_permanent(error):
            raise dg.Failure(str(error), allow_retries=False) from error
        if error is not None and not isinstance(error, Exception):
            raise error
        return super().calculate_delay(attempt_num)


# Jitter: runs that failed together, because a server was away, do not come back together.
RETRY_POLICY: Final = RetryWhereItHelps(max_retries=3, delay=10, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.FULL)

TENANTS_PER_RUN: Final = 500
"""A chunk of tenants is one run and one Spark job. A single run over thousands of partitions hits the start timeout."""

NIGHTLY_FRESHNESS: Final = dg.FreshnessPolicy.time_window(fail_window=LATE_AFTER, warn_window=timedelta(hours=26))
HOURLY_FRESHNESS: Final = dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=6), warn_window=timedelta(hours=3))
"""A run over many tenants may well take its hour, and one that failed is tried again."""


def freshness_by(cron_schedule: str) -> dg.FreshnessPolicy:
    """Of what a schedule computes: every hour, or once a night."""
    _minute, hour, *_days = cron_schedule.split()
    return HOURLY_FRESHNESS if hour == "*" else NIGHTLY_FRESHNESS


AS_LONG_AS_WANTED: Final = {"clientmgr/rhythm": "as long as wanted"}
"""Tags of a job whose schedule may have nothing to do for ever: its assets are never late."""

DAEMON_FRESHNESS: Final = dg.FreshnessPolicy.time_window(
    fail_window=timedelta(minutes=30), warn_window=timedelta(minutes=15)
)
"""Of a daemon, which is materialised every few minutes while it gets on, or has nothing to do."""

SWEEP_FRESHNESS: Final = dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=24))
"""Of the erasure sweep: after that long, something may be left of what was deleted (ERASURE_HOURS)."""

OWNER: Final = "team:client-manager"
"""Of all that we make."""


class PerTenant(TypedDict):
    """Arguments of `@dg.asset` and `@dg.multi_asset`."""

    partitions_def: dg.DynamicPartitionsDefinition
    backfill_policy: dg.BackfillPolicy
    retry_policy: dg.RetryPolicy


PER_TENANT: Final[PerTenant] = {
    "partitions_def": tenants_partitions,
    "backfill_policy": dg.BackfillPolicy.multi_run(max_partitions_per_run=TENANTS_PER_RUN),
    "retry_policy": RETRY_POLICY,
}
