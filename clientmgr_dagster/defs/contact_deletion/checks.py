"""What must hold of contact deletions, before they are published and after."""

from collections.abc import Collection, Mapping

import dagster as dg

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Role
from clientmgr.contact_deletions.publishing import ahead_of_the_clock, unpublished
from clientmgr_dagster.metadata import tenant_table
from clientmgr_dagster.resources import TenantsResource

NOTHING_FROM_THE_FUTURE = dg.AssetCheckSpec(
    "nothing_from_the_future",
    asset="deleted_contacts",
    # Nothing that comes after it runs then. Within the step, nothing of such a tenant is published.
    blocking=True,
    description="No deletion is ahead of the clock: to publish it would move the watermark past others. Blocks that.",
)
EVERY_DELETION_PUBLISHED = dg.AssetCheckSpec(
    "every_deletion_published",
    asset="contact_deletion_messages",
    description="No deletion that was found waits to be published.",
)


def find_ahead(tenants: TenantsResource) -> dict[CustomerId, int]:
    with tenants.database.connect(Role.READER) as connection:
        return ahead_of_the_clock(connection)


def nothing_from_the_future(ahead: Mapping[CustomerId, int], *, of: Collection[CustomerId]) -> dg.AssetCheckResult:
    """`of`: the run's tenants. Those of other runs are shown here too, and stop nothing."""
    return dg.AssetCheckResult(
        passed=not ahead,
        severity=dg.AssetCheckSeverity.WARN if ahead.keys().isdisjoint(of) else dg.AssetCheckSeverity.ERROR,
        asset_key=NOTHING_FROM_THE_FUTURE.asset_key,
        check_name=NOTHING_FROM_THE_FUTURE.name,
        metadata={"ahead": sum(ahead.values()), "tenants": tenant_table(ahead, "ahead")},
    )


def every_deletion_published(tenants: TenantsResource) -> dg.AssetCheckResult:
    with tenants.database.connect(Role.READER) as connection:
        waiting = unpublished(connection)
    return dg.AssetCheckResult(
        passed=not waiting,
        asset_key=EVERY_DELETION_PUBLISHED.asset_key,
        check_name=EVERY_DELETION_PUBLISHED.name,
        # A run for other tenants may be about to publish them.
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"waiting": sum(waiting.values()), "tenants": tenant_table(waiting, "waiting")},
    )
