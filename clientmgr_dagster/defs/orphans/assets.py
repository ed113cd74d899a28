"""`orphan_candidates` and `orphan_deletions`: found by one Spark job for a chunk of tenants, then deleted in batches.

One step computes both, so that a tenant that fails costs only itself: as two steps, the deletions of a whole chunk
would be skipped because one of its tenants could not be read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import dagster as dg
from pydantic import Field

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Role
from clientmgr.base.stopping import StoppedError
from clientmgr.operations.batch_failures import failures_of
from clientmgr.orphans.deletion import (
    OrphanDeletion,
    OrphanResult,
    forget_candidates,
    record_searches,
    results_of_run,
    searched_candidates,
)
from clientmgr.orphans.left_out import legacy_customers
from clientmgr.orphans.policy import OrphanPolicy, Outcome, parse_customers
from clientmgr_dagster.chunks import active_customers_of
from clientmgr_dagster.defs.orphans.checks import NO_YOUNG_CANDIDATES, find_young
from clientmgr_dagster.failing import fail_if_tenants_failed, reporting_even_if_it_fails, stoppable
from clientmgr_dagster.metadata import failure_table, log_partitions, log_summary, no_tenant_has, table
from clientmgr_dagster.policies import PER_TENANT
from clientmgr_dagster.resources import TenantsResource
from clientmgr_dagster.spark.orphans import STEP, find_orphans
from clientmgr_dagster.spark.session import SparkResource

CANDIDATES, DELETIONS = "orphan_candidates", "orphan_deletions"
ACTOR = "dagster:orphan_deletions"
LEFT_OUT: dict[str, int | str] = {"left_out": "still read from the legacy store: it has no orphans"}


class OrphanConfig(dg.Config):
    """What a run overrides of the settings, within the same limits."""

    threshold_days: float | None = Field(None, gt=0)
    max_share: float | None = Field(None, ge=0, le=1)
    dry_run: bool | None = None
    exclude: str = ""
    """More customers to leave out, separated by commas."""

    def policy(self, base: OrphanPolicy) -> OrphanPolicy:
        return replace(
            base,
            threshold=base.threshold if self.threshold_days is None else timedelta(days=self.threshold_days),
            max_share=base.max_share if self.max_share is None else self.max_share,
            dry_run=base.dry_run if self.dry_run is None else self.dry_run,
            excluded=base.excluded | parse_customers(self.exclude),
        )


@dg.multi_asset(
    specs=[
        dg.AssetSpec(
            CANDIDATES,
            deps=["devices"],
            group_name="orphans",
            kinds={"spark", "postgres"},
            metadata={"dagster/table_name": "clientmgr.orphan_candidates"},
            skippable=True,
            description=(
                "Devices without a contact that gave no sign of life for longer than ORPHAN_THRESHOLD_DAYS. "
                "Customers who are still read from the legacy store have none."
            ),
        ),
        dg.AssetSpec(
            DELETIONS,
            deps=[CANDIDATES],
            group_name="orphans",
            kinds={"postgres"},
            metadata={"dagster/table_name": "clientmgr.orphan_deletion_results"},
            skippable=True,
            description="Candidates that still are orphans when looked at again, deleted in batches and audited.",
        ),
    ],
    # Here and not beside the asset: a check of its own would be skipped, as no output is ever yielded.
    check_specs=[NO_YOUNG_CANDIDATES],
    can_subset=True,
    pool="spark",
    **PER_TENANT,
)
def orphans(
    context: dg.AssetExecutionContext, config: OrphanConfig, tenants: TenantsResource, spark: SparkResource
) -> Iterator[dg.AssetCheckResult]:
    """Find, then delete. Only tenants that succeeded are materialised. If any failed, the run fails and says why."""
    selected = {key.to_user_string() for key in context.selected_asset_keys}
    # The check alone is about all tenants, and its run has no partitions.
    customers = active_customers_of(context, tenants) if selected else []
    policy = config.policy(OrphanPolicy.from_settings(tenants.settings))
    unsearched: dict[CustomerId, str] = {}
    if CANDIDATES in selected:
        unsearched = _find(context, tenants, spark, customers, policy)
    # Before anything is deleted: afterwards there are no candidates left to look at.
    young = find_young(tenants)
    if context.selected_asset_check_keys:
        yield no_tenant_has(NO_YOUNG_CANDIDATES, young, "young", of=customers)
    too_young = {customer: _too_young(young[customer]) for customer in customers if customer in young}
    failures = unsearched | too_young
    if DELETIONS in selected:
        searched = [customer for customer in customers if customer not in failures]
        failures |= _delete(context, tenants, searched, policy)
    fail_if_tenants_failed(tenants, customers, failures, by_asset={CANDIDATES: unsearched, DELETIONS: failures})


def _find(
    context: dg.AssetExecutionContext,
    tenants: TenantsResource,
    spark: SparkResource,
    customers: Sequence[CustomerId],
    policy: OrphanPolicy,
) -> dict[CustomerId, str]:
    found_at = datetime.now(UTC)
    with tenants.database.connect(Role.WRITER) as connection:
        legacy = legacy_customers(connection, policy, customers)
        forget_candidates(connection, legacy)
    if searched := [customer for customer in customers if customer not in legacy]:
        spark.run(
            context,
            find_orphans,
            tenants.database,
            tenants.settings,
            searched,
            orphaned_before=policy.orphaned_before(found_at),
            threshold=policy.threshold,
            found_at=found_at,
            run_id=context.run.run_id,
        )
    with tenants.database.connect(Role.WRITER) as connection:
        failures = failures_of(connection, context.run.run_id, STEP)
        readable = [customer for customer in customers if customer not in failures]
        # Spark's write has noted the others with what it found.
        record_searches(connection, sorted(legacy), searched_at=found_at, policy=policy, run_id=context.run.run_id)
        found = searched_candidates(connection, readable)
    log_partitions(
        context,
        CANDIDATES,
        (
            (customer, {"dagster/row_count": count} | (LEFT_OUT if customer in legacy else {}))
            for customer, count in found.items()
        ),
    )
    log_summary(
        context,
        CANDIDATES,
        found,
        unit="candidates",
        tenants=len(found),
        read_from_the_legacy_store=len(legacy),
        threshold_days=policy.threshold.total_seconds() / 86_400,
        failed=failure_table(failures),
    )
    return failures


def _delete(
    context: dg.AssetExecutionContext,
    tenants: TenantsResource,
    customers: Sequence[CustomerId],
    policy: OrphanPolicy,
) -> dict[CustomerId, str]:
    with stoppable(context) as still_wanted:
        with reporting_even_if_it_fails(context, lambda: _report(context, tenants, policy)):
            results = OrphanDeletion(
                tenants.database,
                tenants.settings,
                policy,
                run_id=context.run.run_id,
                actor=ACTOR,
                still_wanted=still_wanted,
            ).run(customers)
        if any(one.outcome is Outcome.STOPPED for one in results):
            deleted = sum(one.deleted for one in results)
            raise StoppedError(f"stopped on request: {deleted} devices are deleted, and audited")
    return {one.customer_id: why for one in results if (why := _why(one))}


def _report(context: dg.AssetExecutionContext, tenants: TenantsResource, policy: OrphanPolicy) -> None:
    """All that the run did, by its table: a step that is tried again finds nothing left of what it deleted before."""
    with tenants.database.connect(Role.READER) as connection:
        results = results_of_run(connection, context.run.run_id)
    log_partitions(
        context,
        DELETIONS,
        (
            (one.customer_id, _numbers(one) | (LEFT_OUT if one.outcome is Outcome.LEGACY else {}))
            for one in results
            if not _why(one) and one.outcome is not Outcome.STOPPED
        ),
        work=("candidates", "deleted", "spared"),
    )
    context.log_event(
        dg.AssetObservation(
            DELETIONS,
            metadata={
                "deleted": sum(one.deleted for one in results if one.outcome in (Outcome.DELETED, Outcome.STOPPED)),
                "dry_run": policy.dry_run,
                "read_from_the_legacy_store": sum(one.outcome is Outcome.LEGACY for one in results),
                "results": table(
                    [{"customer": str(one.customer_id), **_numbers(one), "error": one.error} for one in results]
                ),
            },
        )
    )


def _too_young(candidates: int) -> str:
    return f"{candidates} candidates are younger than the threshold they were found by: nothing was deleted"


def _numbers(result: OrphanResult) -> dict[str, int | str]:
    return {
        "outcome": result.outcome.value,
        "candidates": result.candidates,
        "deleted": result.deleted,
        "spared": result.spared,
    }


def _why(result: OrphanResult) -> str:
    """Why somebody has to look at this tenant. Empty: nobody has to."""
    match result.outcome:
        case Outcome.FAILED:
            return f"{result.error} (after {result.attempts} attempts)"
        case Outcome.GUARDED:
            return (
                f"would lose {result.candidates} of {result.devices} devices: nothing was deleted. "
                "Run it again with a higher max_share if that is right."
            )
        case Outcome.NOT_SEARCHED:
            return "nobody has looked for its orphans yet: materialise orphan_candidates first"
        case _:
            return ""
