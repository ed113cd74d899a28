"""What must hold of contact deletions, before they are published and after."""

import dagster as dg

from clientmgr.base.database import Role
from clientmgr.contact_deletions.publishing import ahead_of_the_clock, unpublished
from clientmgr_dagster.defs.contact_deletion.assets import contact_deletion_messages, deleted_contacts
from clientmgr_dagster.metadata import tenant_table
from clientmgr_dagster.partitions import run_keys
from clientmgr_dagster.resources import TenantsResource


@dg.asset_check(
    asset=deleted_contacts,
    blocking=True,
    description="No deletion is ahead of the clock: to publish it would move the watermark past others. Blocks that.",
)
def nothing_from_the_future(context: dg.AssetCheckExecutionContext, tenants: TenantsResource) -> dg.AssetCheckResult:
    """Those of other runs' tenants are shown here too, and stop nothing."""
    with tenants.database.connect(Role.READER) as connection:
        ahead = ahead_of_the_clock(connection)
    own = {str(customer) for customer in ahead}.intersection(run_keys(context.instance, context.run.tags))
    return dg.AssetCheckResult(
        passed=not ahead,
        severity=dg.AssetCheckSeverity.ERROR if own else dg.AssetCheckSeverity.WARN,
        metadata={"ahead": sum(ahead.values()), "tenants": tenant_table(ahead, "ahead")},
    )


@dg.asset_check(asset=contact_deletion_messages, description="No deletion that was found waits to be published.")
def every_deletion_published(tenants: TenantsResource) -> dg.AssetCheckResult:
    with tenants.database.connect(Role.READER) as connection:
        waiting = unpublished(connection)
    return dg.AssetCheckResult(
        passed=not waiting,
        # A run for other tenants may be about to publish them.
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"waiting": sum(waiting.values()), "tenants": tenant_table(waiting, "waiting")},
    )
