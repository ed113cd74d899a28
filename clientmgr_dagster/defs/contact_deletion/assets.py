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
from clientmgr.base.stopping import StillWanted
from clientmgr.broker.factory import open_broker
from clientmgr.contact_deletions.bigquery import StoredResult, bounds
from clientmgr.contact_deletions.paging import CustomersRows, fetch_pages
from clientmgr.contact_deletions.publishing import Published, publish_deletions, unpublished, watermarks
from clientmgr.contracts.topics import CONTACT_DELETION
from clientmgr_dagster.chunks import active_customers_of, still_active
from clientmgr_dagster.defs.contact_deletion.checks import (
    EVERY_DELETION_PUBLISHED,
    NOTHING_FROM_THE_FUTURE,
    every_deletion_published,
    find_ahead,
)
from clientmgr_dagster.failing import fail_if_tenants_failed, reporting_even_if_it_fails, stoppable
from clientmgr_dagster.metadata import log_partitions, log_summary, no_tenant_has
from clientmgr_dagster.policies import PER_TENANT
from clientmgr_dagster.resources import BigQueryClients, TenantsResource
from clientmgr_dagster.spark.deleted_contacts import store_page
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
            metadata={"dagster/table_name": "clientmgr.contact_deletion_watermarks"},
            skippable=True,
            description=f"Deletions published to `{CONTACT_DELETION}`; a customer's watermark moves with them.",
        ),
    ],
    check_specs=[NOTHING_FROM_THE_FUTURE, EVERY_DELETION_PUBLISHED],
    can_subset=True,
    pool="spark",
    **PER_TENANT,
)
def contact_deletions(
    context: dg.AssetExecutionContext,
    tenants: TenantsResource,
    spark: SparkResource,
    bigquery: dg.ResourceParam[BigQueryClients],
) -> Iterator[dg.AssetCheckResult]:
    """Fetch, then publish. Tenants that are no longer active are passed over. If any failed, the run says why."""
    selected = {key.to_user_string() for key in context.selected_asset_keys}
    # A run of checks alone has no tenants.
    customers = active_customers_of(context, tenants) if selected else []
    if FOUND in selected:
        _fetch(context, tenants, spark, bigquery, customers)
    ahead = find_ahead(tenants)
    too_early = {customer: _too_early(ahead[customer]) for customer in customers if customer in ahead}
    if MESSAGES in selected:
        _publish(context, tenants, [customer for customer in customers if customer not in too_early])
    if EVERY_DELETION_PUBLISHED.key in context.selected_asset_check_keys:
        yield every_deletion_published(tenants)
    if NOTHING_FROM_THE_FUTURE.key in context.selected_asset_check_keys:
        yield no_tenant_has(NOTHING_FROM_THE_FUTURE, ahead, "ahead", of=customers)
    if MESSAGES in selected:
        fail_if_tenants_failed(tenants, customers, too_early, by_asset={MESSAGES: too_early})


def _fetch(
    context: dg.AssetExecutionContext,
    tenants: TenantsResource,
    spark: SparkResource,
    bigquery: BigQueryClients,
    customers: Sequence[CustomerId],
) -> None:
    """One query for a chunk of tenants, however many pages it has. A second run finds the same and keeps it once."""
    settings = tenants.settings
    with tenants.database.connect(Role.READER) as connection:
        since = bounds(watermarks(connection, customers), timedelta(hours=settings.contact_deletion_overlap_hours))

    def store(page: StoredResult) -> list[CustomersRows]:
        return spark.run(context, store_page, tenants.database, settings, page, list(since), run_id=context.run.run_id)

    rows: Counter[CustomerId] = Counter()
    with bigquery.get_client() as client:
        for page in fetch_pages(client, settings, since, store):
            rows.update(page.rows)
            context.log.info(f"page {page.number}: {page.size} deleted contacts, {rows.total()} so far")
    # The chain begins there: what was seen of it, by whom and when.
    context.log_event(dg.AssetObservation("bigquery_deleted_contacts", metadata={"rows": rows.total()}))
    with tenants.database.connect(Role.READER) as connection:
        waiting = unpublished(connection, customers)
    log_summary(context, FOUND, waiting, unit="contacts", rows_in_bigquery=rows.total())
    # Not the rows in BigQuery: within the overlap, every run finds those of the last again.
    active = sorted(still_active(tenants, customers))
    log_partitions(context, FOUND, ((one, {"waiting": waiting.get(one, 0)}) for one in active), work=("waiting",))


def _publish(context: dg.AssetExecutionContext, tenants: TenantsResource, customers: Sequence[CustomerId]) -> None:
    """Publish what was found and is not yet published. A second run publishes nothing."""

    published: dict[CustomerId, int] = {}

    def note(progress: Published) -> None:
        published[progress.customer_id] = progress.messages
        context.log.info(f"customer {progress.customer_id}: {progress.messages} deletions published")

    async def publish(still_wanted: StillWanted) -> None:
        async with open_broker(tenants.settings, tenants.database) as broker:
            overlap = timedelta(hours=tenants.settings.contact_deletion_overlap_hours)
            await publish_deletions(
                broker,
                tenants.database,
                customers,
                overlap=overlap,
                on_progress=note,
                still_wanted=still_wanted,
            )

    def report() -> None:
        log_summary(context, MESSAGES, published, unit="contacts", topic=CONTACT_DELETION)
        own = ((one, {"messages": messages}) for one, messages in published.items())
        log_partitions(context, MESSAGES, own, work=("messages",))

    with stoppable(context) as still_wanted, reporting_even_if_it_fails(context, report):
        asyncio.run(publish(still_wanted))
    # Only now is it known that they had nothing to publish. Who was deleted meanwhile had nothing either.
    active = sorted(still_active(tenants, customers))
    log_partitions(context, MESSAGES, ((one, {"messages": 0}) for one in active if one not in published))


def _too_early(deletions: int) -> str:
    return f"{deletions} deletions are ahead of the clock: nothing of this customer is published"
