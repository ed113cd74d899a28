"""`tenant_schema`: one customer's PostgreSQL schema at the newest migration."""

from collections.abc import Iterator

import dagster as dg

from clientmgr.base.customer_ids import parse_customer_id
from clientmgr.base.database import Role
from clientmgr.tenants.registry import TenantStatus, find_tenants
from clientmgr.tenants.results import Change
from clientmgr_dagster.catalogue import TABLE, computed_by
from clientmgr_dagster.materialisations import mark_failed
from clientmgr_dagster.metadata import log_partitions
from clientmgr_dagster.partitions import DDL_POOL
from clientmgr_dagster.policies import PER_TENANT
from clientmgr_dagster.resources import TenantsResource

NAME = "tenant_schema"


@dg.asset(
    **PER_TENANT,
    group_name="tenancy",
    kinds={"postgres"},
    metadata={TABLE: "clientmgr.tenants", **computed_by("clientmgr.tenants.schema_manager")},
    pool=DDL_POOL,
    # A customer who is deleted before the run begins has no schema: that is no failure, and no materialisation either.
    output_required=False,
    description="The customer's schema, with every migration of `sql/tenant/` applied.",
)
def tenant_schema(context: dg.AssetExecutionContext, tenants: TenantsResource) -> Iterator[dg.AssetCheckResult]:
    """Bring the chosen tenants' schemas to the newest version. Only registered tenants are touched.

    Where some fail, those that succeeded are materialised all the same, and the run names those that failed.
    """
    manager = tenants.schema_manager()
    customers = [parse_customer_id(key, field="partition key") for key in context.partition_keys]
    results = manager.migrate(customers, actor="dagster:tenant_schema")
    failed = {result.customer_id: result.error or "" for result in results if result.change is Change.FAILED}
    migrated = {result.customer_id for result in results} - failed.keys()
    with tenants.database.connect(Role.READER) as connection:
        found = find_tenants(connection, customers)
    unknown = sorted(set(customers) - {tenant.customer_id for tenant in found})
    active = [tenant for tenant in found if tenant.status == TenantStatus.ACTIVE and tenant.customer_id not in failed]
    log_partitions(
        context,
        NAME,
        (
            (one.customer_id, {"schema_version": one.schema_version, "migrated_now": int(one.customer_id in migrated)})
            for one in active
        ),
        work=("migrated_now",),
    )
    if len(customers) > 1:
        counts = {"tenants": len(active), "migrated_now": len(migrated), "failed": len(failed)}
        context.log_event(dg.AssetObservation(NAME, metadata=counts))
    if failed:
        mark_failed(context, context.asset_key, failed)
        raise dg.Failure(
            f"{len(failed)} of {len(customers)} tenants could not be migrated",
            metadata={str(customer): error for customer, error in list(failed.items())[:100]},
        )
    if unknown:
        mark_failed(context, context.asset_key, unknown)
        raise dg.Failure(f"not registered: {', '.join(map(str, unknown[:20]))}", allow_retries=False)
    if not active:
        context.log.warning("deleted meanwhile: there is no schema to bring to the newest version")
    yield from ()  # each tenant's partition is materialised already; to return would materialise all of the run's
