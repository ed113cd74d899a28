"""A tenant that is deleted while a run is at work on it: nothing of it comes back, and the others are done."""

from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from clientmgr.base.customer_ids import CustomerId
from clientmgr.local.standins.bigquery import BigQueryStandIn
from clientmgr.tenants.customer_data import KEPT
from clientmgr.tenants.schema_manager import TenantSchemaManager
from clientmgr_dagster.definitions import build_definitions
from clientmgr_dagster.partitions import partition_range
from clientmgr_dagster.spark.session import SparkResource
from tests.spark.deletions import add
from tests.spark.tenants import Tenants

JOBS = ("contact_deletion_job", "orphan_deletion_job", "contact_deletion_reconciliation_job", "dashboard_job")
FIRST, LAST = CustomerId(11), CustomerId(18)
LEAVING = {job: CustomerId(12 + number) for number, job in enumerate(JOBS)}
WITH_A_CUSTOMER = """
SELECT c.relname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'customer_id'
WHERE c.relkind = 'r' AND c.relnamespace = 'clientmgr'::regnamespace
"""


@pytest.mark.parametrize("before", [True, False], ids=["before Spark has read it", "when Spark has read it"])
def test_nothing_of_it_comes_back_and_the_others_are_done(
    spark: SparkSession, bigquery: BigQueryStandIn, tenants: Tenants, instance: dg.DagsterInstance, before: bool
) -> None:
    everybody = (FIRST, *LEAVING.values(), LAST)
    tenants.activate(*everybody)
    for customer in everybody:
        tenants.add_devices(customer, 200)
        add(bigquery, customer, 1001, 1030)
    instance.add_dynamic_partitions("tenants", [str(customer) for customer in everybody])
    manager, leaves = TenantSchemaManager(tenants.database, tenants.settings), iter(LEAVING.values())

    class Meanwhile(SparkResource):
        def run(self, *args: Any, **kwargs: Any) -> Any:
            leaving = next(leaves)
            if before:
                manager.delete(leaving, actor="test")
            result = super().run(*args, **kwargs)
            if not before:
                manager.delete(leaving, actor="test")
            return result

    definitions = build_definitions(spark=Meanwhile())
    for number, (job, leaving) in enumerate(LEAVING.items()):
        result = definitions.resolve_job_def(job).execute_in_process(
            instance=instance, tags=partition_range([str(FIRST), str(LAST)]), raise_on_error=False
        )

        assert result.success, job
        told = {event.partition for event in result.get_asset_materialization_events()}
        assert told == {str(one) for one in everybody[:1] + everybody[number + 2 :]}, job
        tables = {name for (name,) in tenants.query(WITH_A_CUSTOMER)} - KEPT.keys()
        rows = "SELECT FROM clientmgr.{} WHERE customer_id::text = '{}'"
        assert [name for name in tables if tenants.query(rows.format(name, leaving))] == [], job
