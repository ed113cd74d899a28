"""`tenant_schema`: one customer's PostgreSQL schema at the newest migration."""

import dagster as dg

from clientmgr.database import Role
from clientmgr.tenants.names import parse_customer_id, quoted_schema, schema_name
from clientmgr.tenants.registry import find_tenant
from clientmgr.tenants.schema_manager import Change
from clientmgr_dagster.defs.tenancy.partitions import tenants_partitions
from clientmgr_dagster.resources import TenantsResource

# A chunk of tenants is one run; a single run over thousands of keys hits the start timeout.
TENANTS_PER_RUN = 500


@dg.asset(
    partitions_def=tenants_partitions,
    backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=TENANTS_PER_RUN),
    group_name="tenancy",
    kinds={"postgres"},
    description="The customer's schema, with every migration of `sql/tenant/` applied.",
)
def tenant_schema(context: dg.AssetExecutionContext, tenants: TenantsResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Bring the chosen tenants' schemas to the newest version; only registered tenants are touched."""
    customers = [parse_customer_id(key, field="partition key") for key in context.partition_keys]
    manager = tenants.schema_manager()
    results = manager.migrate(customers, actor="dagster:tenant_schema")
    failed = [result for result in results if result.change is Change.FAILED]
    if failed:
        raise dg.Failure(
            f"{len(failed)} of {len(customers)} tenants could not be migrated",
            metadata={str(result.customer_id): result.error or "" for result in failed[:100]},
        )
    with tenants.database.connect(Role.READER) as connection:
        found = {customer: find_tenant(connection, customer) for customer in customers}
        if unknown := [customer for customer, tenant in found.items() if tenant is None]:
            raise dg.Failure(f"not registered: {', '.join(map(str, unknown[:20]))}")
        devices = {
            customer: connection.execute(f"SELECT count(*) FROM {quoted_schema(customer)}.devices").fetchall()[0][0]
            for customer, tenant in found.items()
            if tenant is not None and tenant.status == "active"
        }
    rows = "\n".join(
        f"| {schema_name(customer)} | {tenant.status} | {tenant.schema_version} | {devices.get(customer, '–')} |"
        for customer, tenant in found.items()
        if tenant is not None
    )
    return dg.MaterializeResult(
        metadata={
            "schema_version": manager.head_version,
            "migrated_now": len(results),
            "tenants": dg.MetadataValue.md(f"| schema | status | version | devices |\n|---|---|---|---|\n{rows}"),
        }
    )
