"""`deleted_contacts` and `contact_deletion_messages`: from BigQuery, page by page, to the topic, in bulk.

One step computes both, so that each tenant is materialised by its own numbers: a step that others wait for has to yield
an output, and an output stands for every tenant of the run.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta

import dagster as dg

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Role
from clientmgr.broker.factory import open_broker
from clientmgr.contact_deletions.bigquery import bounds
from clientmgr.contact_deletions.publishing import Published, publish_deletions, unpublished, watermarks
from clientmgr.contracts.topics import CONTACT_DELETION
from clientmgr_dagster.chunks import active_customers_of
from clientmgr_dagster.defs.contact_deletion.checks import EVERY_DELETION_PUBLISHED, every_deletion_published
from clientmgr_dagster.metadata import log_partitions, log_summary
from clientmgr_dagster.policies import PER_TENANT
from clientmgr_dagster.resources import TenantsResource
from clientmgr_dagster.spark.deleted_contacts import DeletedContactsFetch
from clientmgr_dagster.spark.session import SparkResource

GROUP = "contact_deletion"
FOUND, MESSAGES = "deleted_contacts", "contact_deletion_messages"


@dg.multi_asset(
    specs=[
        dg.AssetSpec(
            FOUND,
            deps=["bigquery_deleted_contacts"],
            group_name=GROUP,
            kinds={"spark", "bigquery", "postgres"},
            metadata={"dagster/table_name": "clientmgr.deleted_contacts"},
            skippable=True,
            description="What customers deleted since their watermark, fetched in pages of CONTACT_DELETION_PAGE_SIZE.",
        ),
        dg.AssetSpec(
            MESSAGES,
            deps=[FOUND],
            group_name=GROUP,
            kinds={"postgres"},
            skippable=True,
            description=f"Deletions published to `{CONTACT_DELETION}`; a customer's watermark moves with them.",
        ),
    ],
    check_specs=[EVERY_DELETION_PUBLISHED],
    can_subset=True,
    pool="spark",
    **PER_TENANT,
)
def contact_deletions(
    context: dg.AssetExecutionContext, tenants: TenantsResource, spark: SparkResource
) -> Iterator[dg.AssetCheckResult]:
    """Fetch, then publish. Tenants that are no longer active are passed over."""
    selected = {key.to_user_string() for key in context.selected_asset_keys}
    if selected:
        customers = active_customers_of(context, tenants)
        if FOUND in selected:
            _fetch(context, tenants, spark, customers)
        if MESSAGES in selected:
            _publish(context, tenants, customers)
    if context.selected_asset_check_keys:
        yield every_deletion_published(tenants)


def _fetch(
    context: dg.AssetExecutionContext, tenants: TenantsResource, spark: SparkResource, customers: Sequence[CustomerId]
) -> None:
    """One query for a chunk of tenants, however many pages it has. A second run finds the same and keeps it once."""
    settings = tenants.settings
    with tenants.database.connect(Role.READER) as connection:
        since = bounds(watermarks(connection, customers), timedelta(hours=settings.contact_deletion_overlap_hours))
    fetch = DeletedContactsFetch(spark.spark_session, tenants.database, settings, since, context.run.run_id)
    rows: Counter[CustomerId] = Counter()
    for page in fetch.pages():
        rows.update(page.rows)
        context.log.info(f"page {page.number}: {page.size} deleted contacts, {rows.total()} so far")
    with tenants.database.connect(Role.READER) as connection:
        waiting = unpublished(connection, customers)
    log_summary(context, FOUND, waiting, unit="contacts", rows_in_bigquery=rows.total())
    # Not the rows in BigQuery: within the overlap, every run finds those of the last again.
    log_partitions(context, FOUND, ((one, {"waiting": waiting.get(one, 0)}) for one in customers), work=("waiting",))


def _publish(context: dg.AssetExecutionContext, tenants: TenantsResource, customers: Sequence[CustomerId]) -> None:
    """Publish what was found and is not yet published. A second run publishes nothing."""

    def log_progress(progress: Published) -> None:
        context.log.info(f"customer {progress.customer_id}: {progress.messages} deletions published")

    async def publish() -> dict[CustomerId, int]:
        async with open_broker(tenants.settings, tenants.database) as broker:
            overlap = timedelta(hours=tenants.settings.contact_deletion_overlap_hours)
            return await publish_deletions(
                broker, tenants.database, customers, overlap=overlap, on_progress=log_progress
            )

    published = asyncio.run(publish())
    log_summary(context, MESSAGES, published, unit="contacts", topic=CONTACT_DELETION)
    own = ((one, {"messages": published.get(one, 0)}) for one in customers)
    log_partitions(context, MESSAGES, own, work=("messages",))
