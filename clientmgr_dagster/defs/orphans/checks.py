"""What must hold of orphans."""

from collections.abc import Collection, Mapping

import dagster as dg

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Role
from clientmgr.orphans.deletion import young_candidates
from clientmgr_dagster.metadata import tenant_table
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


def no_young_candidates(young: Mapping[CustomerId, int], *, of: Collection[CustomerId]) -> dg.AssetCheckResult:
    """`of`: the run's tenants. Those of other runs are shown here too, and stop nothing."""
    return dg.AssetCheckResult(
        passed=not young,
        severity=dg.AssetCheckSeverity.WARN if young.keys().isdisjoint(of) else dg.AssetCheckSeverity.ERROR,
        asset_key=NO_YOUNG_CANDIDATES.asset_key,
        check_name=NO_YOUNG_CANDIDATES.name,
        metadata={"young": sum(young.values()), "tenants": tenant_table(young, "candidates")},
    )
