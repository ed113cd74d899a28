"""`dashboard_tenant_metrics` and its history: one Spark pass over all active tenants."""

from dataclasses import asdict
from datetime import UTC, datetime

import dagster as dg

from clientmgr.base.database import Role
from clientmgr.orphans.left_out import legacy_customers
from clientmgr.orphans.policy import OrphanPolicy
from clientmgr.tenant_metrics.collected_metrics import append_history, largest_tenants, summary, sync_counts
from clientmgr.tenants.registry import TenantStatus, list_tenants
from clientmgr.tenants.schema_manager import Change
from clientmgr_dagster.metadata import ROWS_SHOWN, chart, table
from clientmgr_dagster.policies import RETRY_POLICY
from clientmgr_dagster.resources import TenantsResource
from clientmgr_dagster.spark.session import SparkResource
from clientmgr_dagster.spark.tenant_metrics import collect_metrics

GROUP = "dashboard"
ACTOR = "dagster:dashboard"


@dg.asset(
    deps=["devices", "dynamodb_devices"],
    group_name=GROUP,
    kinds={"spark", "postgres", "dynamodb"},
    metadata={"dagster/table_name": "clientmgr.dashboard_tenant_metrics"},
    pool="spark",
    retry_policy=RETRY_POLICY,
    description="Every active tenant as it stands: devices, tokens, contacts, orphans, growth, size, sync.",
)
def dashboard_tenant_metrics(
    context: dg.AssetExecutionContext, tenants: TenantsResource, spark: SparkResource
) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Count all tenants at once. A tenant that can't be counted is recorded as failed, and the others go on."""
    restored = tenants.schema_manager().restore_missing(actor=ACTOR)
    for result in restored:
        if result.change is Change.FAILED:
            context.log.warning(f"customer {result.customer_id} is without a schema: {result.error}")
    collected_at = datetime.now(UTC)
    policy = OrphanPolicy.from_settings(tenants.settings)
    with tenants.database.connect(Role.READER) as connection:
        customers = [tenant.customer_id for tenant in list_tenants(connection, TenantStatus.ACTIVE)]
        legacy = legacy_customers(connection, policy, customers)
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
        everything = summary(connection)
        lines = largest_tenants(connection, ROWS_SHOWN)
        sync = sync_counts(connection)
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": everything.tenants,
            "failed": everything.failed,
            "devices": everything.devices,
            "orphans": everything.orphans,
            "read_from_the_legacy_store": len(legacy),
            "table_bytes": everything.table_bytes,
            "compared_with_dynamodb": sync.checked,
            "not_comparable_with_dynamodb": sync.failed,
            "schemas_created": sum(1 for result in restored if result.change is not Change.FAILED),
            "largest": chart({line.customer_id: line.devices or 0 for line in lines}, unit="devices"),
            "tenants": table([asdict(line) | {"customer_id": str(line.customer_id)} for line in lines]),
        }
    )


@dg.asset(
    deps=[dashboard_tenant_metrics],
    group_name=GROUP,
    kinds={"postgres"},
    metadata={"dagster/table_name": "clientmgr.dashboard_tenant_metrics_history"},
    retry_policy=RETRY_POLICY,
    description="Every collection of `dashboard_tenant_metrics`, kept: what growth is measured against.",
)
def dashboard_tenant_metrics_history(tenants: TenantsResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Add the newest numbers. A second run adds nothing."""
    with tenants.database.connect(Role.WRITER) as connection:
        added = append_history(connection)
    return dg.MaterializeResult(metadata={"dagster/row_count": added})
