"""What the demo puts in its BigQuery and DynamoDB, on the real stand-ins."""

import os
import threading
import uuid
from typing import Any

import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.devices.legacy.items import plain
from clientmgr.local.demo.nightly_jobs import NightlyJobsOnce
from clientmgr.local.demo.scenario import BUSY, DEMO_CUSTOMERS
from clientmgr.local.standins.bigquery import BigQueryStandIn
from clientmgr.local.standins.demo_stores import LegacyMirror, fill_deleted_contacts
from clientmgr.local.standins.dynamodb import DynamoDbStandIn
from clientmgr.local.standins.server import standins_venv
from clientmgr.tenant_metrics.sync import Sampled, compare, fields_of_item, sample_hash
from clientmgr_dagster.spark.tenant_source import Request, TenantReader
from tests.process_table import mentioning, running, with_descendants
from tests.spark.conftest import need_stand_ins
from tests.spark.tenants import ORDINARY, Tenants
from tests.waiting import eventually


@pytest.fixture
def table(dynamodb_stand_in: DynamoDbStandIn) -> str:
    name = f"demo-{uuid.uuid4().hex[:8]}"
    dynamodb_stand_in.create_devices_table(name)
    return name


def items(server: DynamoDbStandIn, table: str) -> dict[str, dict[str, Any]]:
    found = server.client().scan(TableName=table)["Items"]
    return {plain(item["deviceKey"]): item for item in found}


def test_the_older_system_follows_and_has_missed_three_things(
    dynamodb_stand_in: DynamoDbStandIn, table: str, database: Database, settings: Settings, tenants: Tenants
) -> None:
    tenants.activate(ORDINARY)
    tenants.add_devices(ORDINARY, 60)
    mirror = LegacyMirror(dynamodb_stand_in, table, database, [ORDINARY])

    assert mirror.refresh() == 44
    assert differing_fields(items(dynamodb_stand_in, table), tenants) == {
        "missing in DynamoDB": 1,
        "language": 1,
        "application_version": 1,
    }

    assert mirror.refresh() == 0
    tenants.query("""UPDATE "tenant_11".devices SET contact_id = 5 WHERE client_id = 'c1'""")
    tenants.query("""DELETE FROM "tenant_11".devices WHERE client_id = 'c2'""")
    assert mirror.refresh() >= 3, "the old item of one, the new one, and that of the device that is gone"
    assert plain(items(dynamodb_stand_in, table)["APP-1#c1"]["contactKey"]) == "11#5"
    assert "APP-0#c2" not in items(dynamodb_stand_in, table)


def differing_fields(found: dict[str, dict[str, Any]], tenants: Tenants) -> dict[str, int]:
    names = Sampled._fields
    schema = StructType([StructField(name, StringType()) for name in names])
    request = Request((ORDINARY,), 1, query="sync_sample", parameters={"size": 100})
    reader = TenantReader(tenants.database.url, request, schema)
    here = [Sampled(**row) for pack in reader.partitions() for batch in reader.read(pack) for row in batch.to_pylist()]
    there = [
        Sampled(key, sample_hash("11", key), plain(item["contactKey"]).partition("#")[2], fields_of_item(item))
        for key, item in found.items()
    ]
    result = compare(here, there, 100)
    return {"missing in DynamoDB": result.count("missing in DynamoDB"), **result.different_fields()}


def test_contacts_of_each_customer_are_deleted_in_bigquery(
    bigquery_stand_in: BigQueryStandIn, database: Database, tenants: Tenants
) -> None:
    tenants.activate(ORDINARY)
    tenants.add_devices(ORDINARY, 60)

    assert fill_deleted_contacts(bigquery_stand_in, "contacts.demo", database, [ORDINARY]) == {ORDINARY: 5}

    client = bigquery_stand_in.client()
    try:
        rows = client.query("SELECT customer_id, contact_id FROM contacts.demo ORDER BY 2").result(timeout=60)
        assert [tuple(row.values()) for row in rows] == [(ORDINARY, contact) for contact in range(1000, 1005)]
    finally:
        client.close()


def of_stand_ins() -> set[psutil.Process]:
    """Those of this process; other tests may have some running."""
    return set(mentioning(standins_venv(), among=with_descendants(os.getpid())))


def test_a_demo_that_is_stopped_while_its_stand_ins_start_leaves_nothing_running(
    database: Database, settings: Settings, tenants: Tenants
) -> None:
    need_stand_ins()
    before = of_stand_ins()
    tenants.activate(*DEMO_CUSTOMERS)
    tenants.add_devices(BUSY, 20)
    stop = threading.Event()

    with NightlyJobsOnce(settings, stop) as night:
        night.start_legacy_store()
        legacy_store = of_stand_ins() - before
        night.begin(night.settings)
        started = eventually(lambda: of_stand_ins() - before - legacy_store, "the other is being started")

    assert stop.is_set()
    assert legacy_store
    assert not running(legacy_store | started)
    assert of_stand_ins() <= before
    assert night.settings.dynamodb_endpoint.startswith("http://127.0.0.1:")
    assert night.settings.bigquery_project
    assert night.environment["AWS_ACCESS_KEY_ID"]


def test_stores_that_somebody_has_are_used_and_none_is_started(settings: Settings) -> None:
    own = {"bigquery_project": "acme", "dynamodb_endpoint": "http://127.0.0.1:1", "spark_partitions": 16}
    with NightlyJobsOnce(settings.model_copy(update=own), threading.Event()) as night:
        assert {name: getattr(night.settings, name) for name in own} == own
        assert night.environment == {}
