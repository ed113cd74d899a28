"""`contact_deletion_reconciliation`: deleted contacts that still have devices here, found by Spark, published, counted.

The hourly fetch never sees a row of BigQuery that came later than its overlap. This compares all of both stores.
"""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Role
from clientmgr.base.stopping import StillWanted
from clientmgr.broker.factory import open_broker
from clientmgr.contact_deletions.bigquery import everything_query, stored_result
from clientmgr.contact_deletions.reconciliation import (
    MissedNights,
    Publishing,
    Reconciled,
    missed_two_nights,
    publish_unerased,
    record_search,
    results_of,
)
from clientmgr.contracts.topics import CONTACT_DELETION
from clientmgr.operations.batch_failures import failures_of, record_failures
from clientmgr_dagster.chunks import active_customers_of
from clientmgr_dagster.failing import fail_if_tenants_failed, stoppable
from clientmgr_dagster.metadata import failure_table, log_partitions, log_summary, table
from clientmgr_dagster.policies import PER_TENANT
from clientmgr_dagster.resources import BigQueryClients, TenantsResource
from clientmgr_dagster.spark.contact_deletion_reconciliation import STEP, find_unerased
from clientmgr_dagster.spark.session import SparkResource

NAME = "contact_deletion_reconciliation"

NOTHING_MISSED = dg.AssetCheckSpec(
    "nothing_missed_for_two_nights",
    asset=NAME,
    description="No tenant has had deleted contacts with devices, which the hourly fetch passed by, for two nights.",
)


@dg.asset(
    **PER_TENANT,
    deps=["bigquery_deleted_contacts", "devices"],
    group_name="contact_deletion",
    kinds={"spark", "bigquery", "postgres"},
    metadata={"dagster/table_name": "clientmgr.contact_deletion_reconciliations"},
    pool="spark",
    output_required=False,
    # Here and not beside the asset: a check of its own would be skipped, as no output is ever yielded.
    check_specs=[NOTHING_MISSED],
    description=f"Contacts deleted in BigQuery that still have devices here, published to `{CONTACT_DELETION}`.",
)
def contact_deletion_reconciliation(
    context: dg.AssetExecutionContext,
    tenants: TenantsResource,
    spark: SparkResource,
    bigquery: dg.ResourceParam[BigQueryClients],
) -> Iterator[dg.AssetCheckResult]:
    """Find, count, publish. Only tenants that succeeded are materialised. If any failed, the run fails and says why."""
    customers = active_customers_of(context, tenants)
    run_id = context.run.run_id
    failures = _find(context, tenants, spark, bigquery, customers)
    readable = [customer for customer in customers if customer not in failures]
    with stoppable(context) as still_wanted:
        failures |= asyncio.run(_publish(tenants, readable, run_id, still_wanted)).failures
    with tenants.database.connect(Role.WRITER) as connection:
        record_failures(connection, run_id, STEP, {int(customer): why for customer, why in failures.items()})
        results = [one for one in results_of(connection, readable, run_id=run_id) if one.customer_id not in failures]
    log_partitions(context, NAME, ((one.customer_id, _numbers(one)) for one in results), work=("messages",))
    log_summary(
        context,
        NAME,
        {one.customer_id: one.found for one in results},
        unit="contacts",
        missed=sum(one.missed for one in results),
        messages=sum(one.published for one in results),
        failed=failure_table(failures),
    )
    yield nothing_missed_for_two_nights(tenants)
    fail_if_tenants_failed(tenants, customers, failures)


def nothing_missed_for_two_nights(tenants: TenantsResource) -> dg.AssetCheckResult:
    """One night may be the time between a message and its deletion. Two say that deletions are missed, or not done."""
    with tenants.database.connect(Role.READER) as connection:
        missed = missed_two_nights(connection)
    return dg.AssetCheckResult(
        passed=not missed,
        asset_key=NOTHING_MISSED.asset_key,
        check_name=NOTHING_MISSED.name,
        metadata={"missed": sum(one.missed for one in missed), "tenants": table([_row(one) for one in missed])},
    )


def _find(
    context: dg.AssetExecutionContext,
    tenants: TenantsResource,
    spark: SparkResource,
    bigquery: BigQueryClients,
    customers: Sequence[CustomerId],
) -> dict[CustomerId, str]:
    settings, searched_at, run_id = tenants.settings, datetime.now(UTC), context.run.run_id
    if not customers:
        return {}
    # What says that it is deleted in the future waits until then.
    query = everything_query(settings.bigquery_deleted_contacts_table, customers, until=searched_at)
    with (
        bigquery.get_client() as client,
        stored_result(client, query, scratch_dataset=settings.bigquery_scratch_dataset) as stored,
    ):
        spark.run(
            context,
            find_unerased,
            tenants.database,
            settings,
            customers,
            stored,
            searched_at=searched_at,
            run_id=run_id,
        )
    with tenants.database.connect(Role.WRITER) as connection:
        failures = failures_of(connection, run_id, STEP)
        record_search(
            connection,
            [customer for customer in customers if customer not in failures],
            run_id=run_id,
            searched_at=searched_at,
            overlap=timedelta(hours=settings.contact_deletion_overlap_hours),
        )
    return failures


async def _publish(
    tenants: TenantsResource, customers: Sequence[CustomerId], run_id: str, still_wanted: StillWanted
) -> Publishing:
    async with open_broker(tenants.settings, tenants.database) as broker:
        return await publish_unerased(broker, tenants.database, customers, run_id=run_id, still_wanted=still_wanted)


def _numbers(result: Reconciled) -> dict[str, int | str]:
    return {"dagster/row_count": result.found, "missed": result.missed, "messages": result.published}


def _row(one: MissedNights) -> dict[str, object]:
    return {"customer": str(one.customer_id), "missed": one.missed, "since": one.since.isoformat()}
