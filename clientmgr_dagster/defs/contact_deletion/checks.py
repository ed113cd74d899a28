"""What must hold of contact deletions, before they are published and after."""

import dagster as dg

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Role
from clientmgr.contact_deletions.publishing import ahead_of_the_clock, unpublished
from clientmgr_dagster.metadata import no_tenant_has
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


def every_deletion_published(tenants: TenantsResource) -> dg.AssetCheckResult:
    with tenants.database.connect(Role.READER) as connection:
        waiting = unpublished(connection)
    # A run for other tenants may be about to publish them.
    return no_tenant_has(EVERY_DELETION_PUBLISHED, waiting, "waiting", of=())
