"""What must hold of the dashboard's numbers. They are part of the step that collects them: see `log_partitions`."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Final

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
from clientmgr_dagster.metadata import ROWS_SHOWN, failure_table, table, tenant_table
from clientmgr_dagster.resources import TenantsResource

GROUP: Final = "dashboard"
METRICS, HISTORY = "dashboard_tenant_metrics", "dashboard_tenant_metrics_history"

EVERY_TENANT_COUNTED = dg.AssetCheckSpec(
    "every_tenant_counted", asset=METRICS, description="Every tenant could be counted."
)
SCHEMAS_AT_HEAD = dg.AssetCheckSpec(
    "schemas_at_head", asset=METRICS, description="Every tenant's schema is at the newest version."
)
SYNC_WITHIN_TOLERANCE = dg.AssetCheckSpec(
    "sync_within_tolerance",
    asset=METRICS,
    description="Devices here and in DynamoDB differ by no more than SYNC_TOLERANCE.",
)
HISTORY_COMPLETE = dg.AssetCheckSpec(
    "history_complete", asset=HISTORY, description="The newest numbers of every active tenant are kept."
)


def every_tenant_counted(tenants: TenantsResource) -> dg.AssetCheckResult:
    with tenants.database.connect(Role.READER) as connection:
        found = summary(connection)
    return dg.AssetCheckResult(
        asset_key=EVERY_TENANT_COUNTED.asset_key,
        check_name=EVERY_TENANT_COUNTED.name,
        passed=found.failed == 0,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"failed": found.failed},
    )


def schemas_at_head(tenants: TenantsResource) -> dg.AssetCheckResult:
    with tenants.database.connect(Role.READER) as connection:
        behind = behind_on_migrations(connection)
    rows = [{"customer": str(customer), "version": own, "newest": head} for customer, (own, head) in behind.items()]
    return dg.AssetCheckResult(
        asset_key=SCHEMAS_AT_HEAD.asset_key,
        check_name=SCHEMAS_AT_HEAD.name,
        passed=not behind,
        metadata={"behind": len(behind), "tenants": table(rows)},
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
        asset_key=SYNC_WITHIN_TOLERANCE.asset_key,
        check_name=SYNC_WITHIN_TOLERANCE.name,
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


def history_complete(tenants: TenantsResource) -> dg.AssetCheckResult:
    with tenants.database.connect(Role.READER) as connection:
        missing = without_history(connection)
    return dg.AssetCheckResult(
        asset_key=HISTORY_COMPLETE.asset_key,
        check_name=HISTORY_COMPLETE.name,
        passed=not missing,
        metadata={"missing": len(missing), "tenants": table([{"customer": str(customer)} for customer in missing])},
    )


CHECKS: Final[Sequence[tuple[dg.AssetCheckSpec, Callable[[TenantsResource], dg.AssetCheckResult]]]] = (
    (EVERY_TENANT_COUNTED, every_tenant_counted),
    (SCHEMAS_AT_HEAD, schemas_at_head),
    (SYNC_WITHIN_TOLERANCE, sync_within_tolerance),
    (HISTORY_COMPLETE, history_complete),
)
