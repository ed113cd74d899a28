"""`dashboard_tenant_metrics` and its history: one Spark pass over a chunk of tenants, or over one.

One step computes both, so that each tenant is materialised by its own numbers: a step that others wait for has to yield
an output, and an output stands for every tenant of the run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

import dagster as dg

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Role
from clientmgr.orphans.left_out import legacy_customers
from clientmgr.orphans.policy import OrphanPolicy
from clientmgr.tenant_metrics.collected_metrics import TenantLine, append_history, lines_of
from clientmgr.tenants.results import Change
from clientmgr_dagster.chunks import active_customers_of
from clientmgr_dagster.defs.tenant_metrics.checks import CHECKS, GROUP, HISTORY, METRICS
from clientmgr_dagster.materialisations import OwnNumbers
from clientmgr_dagster.metadata import log_partitions, log_summary, table
from clientmgr_dagster.policies import PER_TENANT
from clientmgr_dagster.resources import TenantsResource
from clientmgr_dagster.spark.session import SparkResource
from clientmgr_dagster.spark.tenant_metrics import collect_metrics

ACTOR = "dagster:dashboard"


@dg.multi_asset(
    specs=[
        dg.AssetSpec(
            METRICS,
            deps=["devices", "dynamodb_devices"],
            group_name=GROUP,
            kinds={"spark", "postgres", "dynamodb"},
            metadata={"dagster/table_name": "clientmgr.dashboard_tenant_metrics"},
            skippable=True,
            description="An active tenant as it stands: devices, tokens, contacts, orphans, growth, size, sync.",
        ),
        dg.AssetSpec(
            HISTORY,
            deps=[METRICS],
            group_name=GROUP,
            kinds={"postgres"},
            metadata={"dagster/table_name": "clientmgr.dashboard_tenant_metrics_history"},
            skippable=True,
            description="Every collection of `dashboard_tenant_metrics`, kept: what growth is measured against.",
        ),
    ],
    check_specs=[spec for spec, _ in CHECKS],
    can_subset=True,
    pool="spark",
    **PER_TENANT,
)
def tenant_metrics(
    context: dg.AssetExecutionContext, tenants: TenantsResource, spark: SparkResource
) -> Iterator[dg.AssetCheckResult]:
    """Collect, then keep. The rows of tenants that are not of this run stay as they are."""
    selected = {key.to_user_string() for key in context.selected_asset_keys}
    if selected:
        customers = active_customers_of(context, tenants)
        if METRICS in selected:
            _collect(context, tenants, spark, customers)
        if HISTORY in selected:
            _keep(context, tenants, customers)
    for spec, check in CHECKS:
        if spec.key in context.selected_asset_check_keys:
            yield check(tenants)


def _collect(
    context: dg.AssetExecutionContext, tenants: TenantsResource, spark: SparkResource, customers: Sequence[CustomerId]
) -> None:
    """A tenant that can't be counted has a row that says why, and is not materialised. The others go on."""
    # Of this run's tenants only: other chunks may be at work at the same time.
    restored = tenants.schema_manager().restore_missing(customers, actor=ACTOR)
    for result in restored:
        if result.change is Change.FAILED:
            context.log.warning(f"customer {result.customer_id} is without a schema: {result.error}")
    collected_at = datetime.now(UTC)
    policy = OrphanPolicy.from_settings(tenants.settings)
    with tenants.database.connect(Role.READER) as connection:
        legacy = legacy_customers(connection, policy, customers)
    if customers:
        spark.run(
            context,
            collect_metrics,
            tenants.database,
            tenants.settings,
            customers,
            collected_at=collected_at,
            orphaned_before=policy.orphaned_before(collected_at),
            without_orphans=legacy,
            run_id=context.run.run_id,
        )
    with tenants.database.connect(Role.READER) as connection:
        lines = lines_of(connection, customers)
    counted = [line for line in lines if line.status == "ok"]
    log_partitions(context, METRICS, ((line.customer_id, _numbers(line)) for line in counted))
    log_summary(
        context,
        METRICS,
        {line.customer_id: line.devices or 0 for line in lines},
        unit="devices",
        tenants=len(lines),
        failed=len(lines) - len(counted),
        orphans=sum(line.orphans or 0 for line in lines),
        read_from_the_legacy_store=len(legacy),
        compared_with_dynamodb=sum(line.sync_status in {"in sync", "differs"} for line in lines),
        not_comparable_with_dynamodb=sum(line.sync_status == "failed" for line in lines),
        schemas_created=sum(result.change is not Change.FAILED for result in restored),
        largest=table([asdict(line) | {"customer_id": str(line.customer_id)} for line in lines]),
    )


def _keep(context: dg.AssetExecutionContext, tenants: TenantsResource, customers: Sequence[CustomerId]) -> None:
    """Add the newest numbers. A second run adds nothing."""
    with tenants.database.connect(Role.WRITER) as connection:
        added = append_history(connection, customers)
        lines = lines_of(connection, customers)
    kept = ((line.customer_id, {"devices": line.devices or 0}) for line in lines if line.status == "ok")
    log_partitions(context, HISTORY, kept)
    context.log_event(dg.AssetObservation(HISTORY, metadata={"added": added}))


def _numbers(line: TenantLine) -> OwnNumbers:
    return {
        "devices": line.devices or 0,
        "contacts": line.contacts or 0,
        "orphans": line.orphans or 0,
        "sync": line.sync_status,
    }
