"""`deleted_contacts` and `contact_deletion_messages`: from BigQuery, page by page, to the topic, in bulk."""

import asyncio
from collections import Counter
from datetime import timedelta

import dagster as dg

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Role
from clientmgr.broker.factory import open_broker
from clientmgr.contact_deletions.bigquery import StoredResult, bounds
from clientmgr.contact_deletions.paging import CustomersRows, fetch_pages
from clientmgr.contact_deletions.publishing import Published, publish_deletions, unpublished, watermarks
from clientmgr.contracts.topics import CONTACT_DELETION
from clientmgr_dagster.chunks import active_customers_of
from clientmgr_dagster.metadata import log_summary, partition_results
from clientmgr_dagster.policies import PER_TENANT
from clientmgr_dagster.resources import BigQueryClients, TenantsResource
from clientmgr_dagster.spark.deleted_contacts import store_page
from clientmgr_dagster.spark.session import SparkResource

GROUP = "contact_deletion"


@dg.asset(
    **PER_TENANT,
    deps=["bigquery_deleted_contacts"],
    group_name=GROUP,
    kinds={"spark", "bigquery", "postgres"},
    metadata={"dagster/table_name": "clientmgr.deleted_contacts"},
    pool="spark",
    description="What customers deleted since their watermark, fetched in pages of CONTACT_DELETION_PAGE_SIZE.",
)
def deleted_contacts(
    context: dg.AssetExecutionContext,
    tenants: TenantsResource,
    spark: SparkResource,
    bigquery: dg.ResourceParam[BigQueryClients],
) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """One query for a chunk of tenants, however many pages it has. A second run finds the same and keeps it once."""
    settings = tenants.settings
    active = active_customers_of(context, tenants)
    with tenants.database.connect(Role.READER) as connection:
        since = bounds(watermarks(connection, active), timedelta(hours=settings.contact_deletion_overlap_hours))

    def store(page: StoredResult) -> list[CustomersRows]:
        return spark.run(context, store_page, tenants.database, settings, page, list(since), run_id=context.run.run_id)

    rows: Counter[CustomerId] = Counter()
    with bigquery.get_client() as client:
        for page in fetch_pages(client, settings, since, store):
            rows.update(page.rows)
            context.log.info(f"page {page.number}: {page.size} deleted contacts, {rows.total()} so far")
    with tenants.database.connect(Role.READER) as connection:
        waiting = unpublished(connection, active)
    log_summary(context, "deleted_contacts", waiting, unit="contacts", rows_in_bigquery=rows.total())
    own = ((one, {"rows_in_bigquery": rows[one], "waiting": waiting.get(one, 0)}) for one in active)
    return partition_results(context, own)


@dg.asset(
    **PER_TENANT,
    deps=[deleted_contacts],
    group_name=GROUP,
    kinds={"postgres"},
    description=f"Deletions published to `{CONTACT_DELETION}`; a customer's watermark moves with them.",
)
def contact_deletion_messages(context: dg.AssetExecutionContext, tenants: TenantsResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Publish what was found and is not yet published. A second run publishes nothing."""

    def log_progress(progress: Published) -> None:
        context.log.info(f"customer {progress.customer_id}: {progress.messages} deletions published")

    customers = active_customers_of(context, tenants)

    async def publish() -> dict[CustomerId, int]:
        async with open_broker(tenants.settings, tenants.database) as broker:
            overlap = timedelta(hours=tenants.settings.contact_deletion_overlap_hours)
            return await publish_deletions(
                broker, tenants.database, customers, overlap=overlap, on_progress=log_progress
            )

    published = asyncio.run(publish())
    log_summary(context, "contact_deletion_messages", published, unit="contacts", topic=CONTACT_DELETION)
    return partition_results(context, ((one, {"messages": published.get(one, 0)}) for one in customers))
