"""Runs over chunks of tenants: which tenants a run has, what its Spark job wrote, run requests for all tenants."""

from collections.abc import Iterator, Sequence

import dagster as dg
from psycopg import sql

from clientmgr.base.customer_ids import CustomerId, parse_customer_id
from clientmgr.base.database import Role
from clientmgr.base.portions import portions
from clientmgr.operations.batch_failures import failures_of
from clientmgr.tenants.registry import TenantStatus, find_tenants
from clientmgr_dagster.partitions import PARTITIONS, RETRIED, partition_range
from clientmgr_dagster.policies import TENANTS_PER_RUN
from clientmgr_dagster.resources import TenantsResource
from clientmgr_dagster.spark.results_writer import CONTROL_SCHEMA, ResultWrite


def active_customers_of(context: dg.AssetExecutionContext, tenants: TenantsResource) -> list[CustomerId]:
    """The run's tenants, without those that were deleted since the run was requested."""
    wanted = [parse_customer_id(key, field="partition key") for key in context.partition_keys]
    active = still_active(tenants, wanted)
    if passed_over := [str(customer) for customer in wanted if customer not in active]:
        context.log.warning(f"not active, and passed over: {', '.join(passed_over[:20])} ({len(passed_over)} in all)")
    return [customer for customer in wanted if customer in active]


def still_active(tenants: TenantsResource, customers: Sequence[CustomerId]) -> set[CustomerId]:
    with tenants.database.connect(Role.READER) as connection:
        found = find_tenants(connection, customers)
    return {tenant.customer_id for tenant in found if tenant.status == TenantStatus.ACTIVE}


def written(tenants: TenantsResource, write: ResultWrite) -> tuple[dict[CustomerId, int], dict[CustomerId, str]]:
    """What a write left in its table: how many rows each tenant has, and why tenants without a result failed."""
    count = sql.SQL("SELECT customer_id, count(*) FROM {} WHERE customer_id = ANY(%s) GROUP BY customer_id").format(
        sql.Identifier(CONTROL_SCHEMA, write.target)
    )
    with tenants.database.connect(Role.READER) as connection:
        failures = failures_of(connection, write.run_id, write.step)
        rows = dict(connection.execute(count, (list(write.customers),)).fetchall())
    customers = [CustomerId(customer) for customer in write.customers if customer not in failures]
    return {customer: rows.get(customer, 0) for customer in customers}, failures


def requests_for_every_tenant(
    context: dg.ScheduleEvaluationContext, *, name: str, in_one_run: bool = False
) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """What a schedule over all tenants returns. `in_one_run`: for work that costs as much for one as for all."""
    keys = context.instance.get_dynamic_partitions(PARTITIONS)
    if not keys:
        yield dg.SkipReason("there are no tenants")
    size = len(keys) if in_one_run else TENANTS_PER_RUN
    yield from requests_for_all(keys, name=name, moment=context.scheduled_execution_time.isoformat(), size=size)


def requests_for_all(
    keys: Sequence[str], *, name: str, moment: str, size: int = TENANTS_PER_RUN
) -> Iterator[dg.RunRequest]:
    """A run for each chunk of neighbours: ranges are positional, so scattered keys would be a run each."""
    for chunk in portions(keys, max(size, 1)):
        first, last = chunk[0], chunk[-1]
        run_key = f"{name}:{moment}:{first}:{last}"
        if first == last:
            yield dg.RunRequest(run_key=run_key, partition_key=first, tags=RETRIED)
        else:
            yield dg.RunRequest(run_key=run_key, tags=RETRIED | partition_range([first, last]))
