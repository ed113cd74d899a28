"""What must hold of the dashboard's numbers."""

import dagster as dg

from clientmgr.dashboard.metrics import behind_on_migrations, out_of_sync, summary, sync_counts, without_history
from clientmgr.database import Role
from clientmgr_dagster.chunks import table
from clientmgr_dagster.defs.dashboard.assets import dashboard_tenant_metrics, dashboard_tenant_metrics_history
from clientmgr_dagster.resources import TenantsResource


@dg.asset_check(asset=dashboard_tenant_metrics, description="Every tenant could be counted.")
def every_tenant_counted(tenants: TenantsResource) -> dg.AssetCheckResult:
    with tenants.database.connect(Role.READER) as connection:
        found = summary(connection)
    return dg.AssetCheckResult(
        passed=found.failed == 0, severity=dg.AssetCheckSeverity.WARN, metadata={"failed": found.failed}
    )


@dg.asset_check(asset=dashboard_tenant_metrics, description="Every tenant's schema is at the newest version.")
def schemas_at_head(tenants: TenantsResource) -> dg.AssetCheckResult:
    with tenants.database.connect(Role.READER) as connection:
        behind = behind_on_migrations(connection)
    rows = [{"customer": str(customer), "version": own, "newest": head} for customer, (own, head) in behind.items()]
    return dg.AssetCheckResult(passed=not behind, metadata={"behind": len(behind), "tenants": table(rows)})


@dg.asset_check(
    asset=dashboard_tenant_metrics, description="Devices here and in DynamoDB differ by no more than SYNC_TOLERANCE."
)
def sync_within_tolerance(tenants: TenantsResource) -> dg.AssetCheckResult:
    """Not checked is no failure, and says so; what should have been checked and could not be is one."""
    tolerance = tenants.settings.sync_tolerance
    with tenants.database.connect(Role.READER) as connection:
        worst = out_of_sync(connection, tolerance)
        checked, failed = sync_counts(connection)
    rows = [{"customer": str(customer), "difference": share} for customer, share in worst.items()]
    return dg.AssetCheckResult(
        passed=not worst and not failed,
        metadata={
            "tolerance": tolerance,
            "checked": checked,
            "failed": failed,
            "out_of_sync": len(worst),
            "tenants": table(rows),
        },
    )


@dg.asset_check(asset=dashboard_tenant_metrics_history, description="Every active tenant's newest numbers are kept.")
def history_complete(tenants: TenantsResource) -> dg.AssetCheckResult:
    with tenants.database.connect(Role.READER) as connection:
        missing = without_history(connection)
    return dg.AssetCheckResult(
        passed=not missing,
        metadata={"missing": len(missing), "tenants": table([{"customer": str(customer)} for customer in missing])},
    )
