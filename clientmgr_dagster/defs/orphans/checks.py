"""What must hold of orphans."""

import dagster as dg

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Role
from clientmgr.orphans.deletion import young_candidates
from clientmgr_dagster.resources import TenantsResource

NO_YOUNG_CANDIDATES = dg.AssetCheckSpec(
    "no_young_candidates",
    asset="orphan_candidates",
    # Nothing that comes after it runs then. Within the step, a tenant with young candidates loses nothing.
    blocking=True,
    description="No candidate had given a sign of life within the threshold when it was found.",
)


def find_young(tenants: TenantsResource) -> dict[CustomerId, int]:
    with tenants.database.connect(Role.READER) as connection:
        return young_candidates(connection)
