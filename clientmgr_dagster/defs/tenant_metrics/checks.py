"""What must hold of the dashboard's numbers."""

from dataclasses import asdict

import dagster as dg

from clientmgr.base.database import Role
from clientmgr.tenant_metrics.collected_metrics import (
    SyncDifference,
    behind_on_migrations,
    out_of_sync,
    summary,
    sync_counts,
    sync_differences,
    sync_failures,
    without_history,
)
from clientmgr_dagster.defs.tenant_metrics.assets import dashboard_tenant_metrics, dashboard_tenant_metrics_history
from clientmgr_dagster.metadata import ROWS_SHOWN, failure_table, table, tenant_table
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
    """A tenant that need not be compared is no failure. One that could not be compared is."""
    tolerance = tenants.settings.sync_tolerance
    with tenants.database.connect(Role.READER) as connection:
        worst = out_of_sync(connection, tolerance)
        counts = sync_counts(connection)
        failures = sync_failures(connection, ROWS_SHOWN)
        devices = sync_differences(connection, ROWS_SHOWN)
    return dg.AssetCheckResult(
        passed=not worst and not counts.failed,
        description="" if counts.checked or counts.failed else "Nothing was compared: there is no DynamoDB to check.",
        metadata={
            "tolerance": tolerance,
            "checked": counts.checked,
            "failed": counts.failed,
            "not_checked": counts.not_checked,
            "out_of_sync": len(worst),
            "tenants": tenant_table(worst, "difference"),
            "why_failed": failure_table(failures),
            "devices": table([_shown(one) for one in devices]),
        },
    )


def _shown(one: SyncDifference) -> dict[str, str]:
    return {**asdict(one), "customer_id": str(one.customer_id), "fields": ", ".join(one.fields)}


@dg.asset_check(asset=dashboard_tenant_metrics_history, description="Every active tenant's newest numbers are kept.")
def history_complete(tenants: TenantsResource) -> dg.AssetCheckResult:
    with tenants.database.connect(Role.READER) as connection:
        missing = without_history(connection)
    return dg.AssetCheckResult(
        passed=not missing,
        metadata={"missing": len(missing), "tenants": table([{"customer": str(customer)} for customer in missing])},
    )
