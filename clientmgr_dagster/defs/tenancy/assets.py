"""`tenant_schema`: one customer's PostgreSQL schema at the newest migration."""

from collections.abc import Iterator

import dagster as dg

from clientmgr.base.customer_ids import parse_customer_id, quoted_schema
from clientmgr.base.database import Role
from clientmgr.tenants.registry import TenantStatus, find_tenants
from clientmgr.tenants.results import Change
from clientmgr_dagster.catalogue import TABLE, computed_by
from clientmgr_dagster.failing import permanent_errors_are_final
from clientmgr_dagster.metadata import log_partitions, log_summary, partition_results
from clientmgr_dagster.partitions import DDL_POOL
from clientmgr_dagster.policies import PER_TENANT
from clientmgr_dagster.resources import TenantsResource


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
def tenant_schema(context: dg.AssetExecutionContext, tenants: TenantsResource) -> Iterator[dg.MaterializeResult]:  # type: ignore[type-arg]
    """Bring the chosen tenants' schemas to the newest version. Only registered tenants are touched.

    Where some fail, those that succeeded are materialised all the same, and the run names those that failed.
    """
    manager = tenants.schema_manager()
    with permanent_errors_are_final():
        customers = [parse_customer_id(key, field="partition key") for key in context.partition_keys]
        results = manager.migrate(customers, actor="dagster:tenant_schema")
    failed = {result.customer_id: result.error or "" for result in results if result.change is Change.FAILED}
    with tenants.database.connect(Role.READER) as connection:
        found = find_tenants(connection, customers)
        unknown = sorted(set(customers) - {tenant.customer_id for tenant in found})
        active = [
            tenant for tenant in found if tenant.status == TenantStatus.ACTIVE and tenant.customer_id not in failed
        ]
        if failed or unknown:
            # One by one: what is yielded stands for all tenants of the run.
            done = ((tenant.customer_id, {"schema_version": tenant.schema_version}) for tenant in active)
            log_partitions(context, context.asset_key.to_user_string(), done)
        if failed:
            raise dg.Failure(
                f"{len(failed)} of {len(customers)} tenants could not be migrated",
                metadata={str(customer): error for customer, error in list(failed.items())[:100]},
            )
        if unknown:
            raise dg.Failure(f"not registered: {', '.join(map(str, unknown[:20]))}", allow_retries=False)
        devices = {
            tenant.customer_id: connection.execute(
                f"SELECT count(*) FROM {quoted_schema(tenant.customer_id)}.devices"
            ).fetchall()[0][0]
            for tenant in active
        }
    if not active:
        context.log.warning("deleted meanwhile: there is no schema to bring to the newest version")
        return
    log_summary(context, context.asset_key.to_user_string(), devices, unit="devices", migrated_now=len(results))
    migrated = {result.customer_id for result in results}
    yield partition_results(
        context,
        (
            (
                tenant.customer_id,
                {
                    "schema_version": tenant.schema_version,
                    "migrated_now": int(tenant.customer_id in migrated),
                    "devices": devices[tenant.customer_id],
                },
            )
            for tenant in active
        ),
    )
