"""Every batch job, run as assets run them, wherever the settings say: `python -m tests.spark.every_job CUSTOMER…`.

As a program it is for the ways that need a process of their own. Their results lie in the tables.
"""

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from clientmgr.base.customer_ids import CustomerId, parse_customer_id
from clientmgr.contact_deletions.bigquery import everything_query, stored_result
from clientmgr.contact_deletions.paging import fetch_pages
from clientmgr_dagster.bigquery import DeletedContactsBigQuery
from clientmgr_dagster.resources import TenantsResource
from clientmgr_dagster.spark.batch_jobs import JOBS, job_of
from clientmgr_dagster.spark.contact_deletion_reconciliation import find_unerased
from clientmgr_dagster.spark.deleted_contacts import store_page
from clientmgr_dagster.spark.legacy_devices import scan_legacy_devices
from clientmgr_dagster.spark.orphans import find_orphans
from clientmgr_dagster.spark.session import SparkResource
from clientmgr_dagster.spark.tenant_metrics import collect_metrics

RUN = "everywhere"
ALL_JOBS: tuple[Callable[..., Any], ...] = (
    find_orphans,
    collect_metrics,
    store_page,
    find_unerased,
    scan_legacy_devices,
)


def run_every_job(customers: Sequence[CustomerId], now: datetime) -> list[int]:
    """Put their results in the tables. How many deleted contacts each page had is what comes back."""
    assert {job_of(job).name for job in ALL_JOBS} == JOBS.keys(), "a job that is not run here may work nowhere else"
    pages: list[int] = []

    @dg.asset
    def every_job(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]
        tenants, spark = TenantsResource(), SparkResource()
        database, settings = tenants.database, tenants.settings
        before = now - timedelta(days=30)
        spark.run(
            context,
            find_orphans,
            database,
            settings,
            customers,
            orphaned_before=before,
            threshold=now - before,
            found_at=now,
            run_id=RUN,
        )
        spark.run(
            context,
            collect_metrics,
            database,
            settings,
            customers,
            orphaned_before=before,
            collected_at=now,
            run_id=RUN,
        )
        spark.run(context, scan_legacy_devices, database, settings, customers, scanned_at=now, run_id=RUN)
        with DeletedContactsBigQuery.from_settings(settings).get_client() as client:
            since = dict.fromkeys(customers, datetime(2020, 1, 1, tzinfo=UTC))
            for page in fetch_pages(
                client,
                settings,
                since,
                lambda stored: spark.run(context, store_page, database, settings, stored, customers, run_id=RUN),
            ):
                pages.append(page.size)
            query = everything_query(settings.bigquery_deleted_contacts_table, customers, until=now)
            with stored_result(client, query, scratch_dataset=settings.bigquery_scratch_dataset) as stored:
                spark.run(context, find_unerased, database, settings, customers, stored, searched_at=now, run_id=RUN)
        return dg.MaterializeResult()

    with dg.DagsterInstance.ephemeral() as instance:
        dg.materialize([every_job], instance=instance)
    return pages


if __name__ == "__main__":
    moment, *names = sys.argv[1:]
    run_every_job([parse_customer_id(name) for name in names], datetime.fromisoformat(moment))
