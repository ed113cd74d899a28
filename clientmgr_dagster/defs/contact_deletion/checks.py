"""What must hold of contact deletions."""

import dagster as dg

from clientmgr.base.database import Role
from clientmgr.contact_deletions.publishing import unpublished
from clientmgr_dagster.metadata import tenant_table
from clientmgr_dagster.resources import TenantsResource

EVERY_DELETION_PUBLISHED = dg.AssetCheckSpec(
    "every_deletion_published",
    asset="contact_deletion_messages",
    description="No deletion that was found waits to be published.",
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
