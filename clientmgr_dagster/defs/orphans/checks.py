"""What must hold of orphans."""

import dagster as dg

from clientmgr.database import Role
from clientmgr.orphans.deletion import young_candidates
from clientmgr_dagster.chunks import table
from clientmgr_dagster.resources import TenantsResource

NO_YOUNG_CANDIDATES = dg.AssetCheckSpec(
    "no_young_candidates",
    asset="orphan_candidates",
    description="No candidate had been without a contact for less than the threshold when it was found.",
)


def no_young_candidates(tenants: TenantsResource) -> dg.AssetCheckResult:
    with tenants.database.connect(Role.READER) as connection:
        young = young_candidates(connection)
    rows = [{"customer": str(customer), "candidates": count} for customer, count in young.items()]
    return dg.AssetCheckResult(
        passed=not young,
        asset_key=NO_YOUNG_CANDIDATES.asset_key,
        check_name=NO_YOUNG_CANDIDATES.name,
        metadata={"young": sum(young.values()), "tenants": table(rows)},
    )
