"""A contact's deletion, from BigQuery to the audit log, with real parts: every link of the chain tells of it."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from clientmgr.base.customer_ids import CustomerId, quoted_schema
from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.local.standins.bigquery import BigQueryStandIn
from clientmgr_dagster.definitions import build_definitions
from clientmgr_dagster.defs.lineage.deletions import deletion_lineage_sensor
from clientmgr_dagster.partitions import partition_range
from clientmgr_dagster.resources import TenantsResource
from streaming import contact_deletion, writer
from streaming.runtime.daemon import Daemon
from tests.spark.deletions import add_one, published
from tests.spark.tenants import EMPTY, ORDINARY, Tenants
from tests.streaming.rig import Rig, event

CONTACT = 4242
LINKED_AT = datetime.now(UTC) - timedelta(days=2)
DELETED_AT = LINKED_AT + timedelta(days=1)
CHAIN = ("deleted_contacts", "contact_deletion_messages", "daemons/contact_deletion", "devices", "audit_log")


@pytest.fixture
def instance(tenants: Tenants) -> Iterator[dg.DagsterInstance]:
    tenants.activate(ORDINARY, EMPTY)
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("tenants", [str(ORDINARY), str(EMPTY)])
        yield instance


def run_hourly_job(instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    job = build_definitions().resolve_job_def("contact_deletion_job")
    tags = partition_range([str(ORDINARY), str(EMPTY)])
    return job.execute_in_process(instance=instance, tags=tags, raise_on_error=False)


def newest(instance: dg.DagsterInstance, asset: str, customer: CustomerId) -> dg.EventLogRecord | None:
    key = dg.AssetKey(asset.split("/"))
    wanted = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[str(customer)])
    records = instance.fetch_materializations(wanted, limit=1).records
    return records[0] if records else None


def test_every_link_tells_of_the_deletion_in_the_order_in_which_it_went_through(
    spark: SparkSession,
    bigquery: BigQueryStandIn,
    database: Database,
    settings: Settings,
    tenants: Tenants,
    instance: dg.DagsterInstance,
) -> None:
    async def at_work(daemon: Daemon, *events: dict[str, Any]) -> None:
        async with PostgresBroker(database, settings) as broker:
            rig = Rig(settings, database, broker)
            await rig.publish(*events)
            await rig.burst(daemon)

    def devices() -> list[tuple[Any, ...]]:
        return tenants.query(f"SELECT contact_id FROM {quoted_schema(ORDINARY)}.devices")

    linked = event("contactLinked", customer=ORDINARY, at=round(LINKED_AT.timestamp() * 1000), contactId=CONTACT)
    asyncio.run(at_work(writer.DAEMON, linked))
    assert devices() == [(CONTACT,)]
    add_one(bigquery, ORDINARY, CONTACT, DELETED_AT)

    assert run_hourly_job(instance).success
    asyncio.run(at_work(contact_deletion.DAEMON))
    assert devices() == []
    with dg.build_sensor_context(instance=instance, resources={"tenants": TenantsResource()}) as context:
        deletion_lineage_sensor(context)

    links = [newest(instance, asset, ORDINARY) for asset in CHAIN]
    assert all(links), dict(zip(CHAIN, links, strict=True))
    stored = [link.storage_id for link in links if link is not None]
    assert stored == sorted(stored), "cause before consequence"
    told = [link.asset_materialization for link in links if link is not None]
    numbers = [{name: value.value for name, value in one.metadata.items()} for one in told if one is not None]
    assert [numbers[0]["waiting"], numbers[1]["messages"], numbers[2]["contacts_deleted"]] == [1, 1, 1]
    assert [numbers[2]["devices_deleted"], numbers[3]["devices_deleted"]] == [1, 1]
    ((seq, chain_end),) = tenants.query(
        f"SELECT seq, encode(hash, 'hex') FROM clientmgr.audit_heads WHERE customer_id = {ORDINARY}"
    )
    assert (numbers[4]["last_row"], numbers[4]["hash_of_last_row"]) == (seq, chain_end[:16])
    assert str(CONTACT) not in str(numbers), "Dagster keeps this longer than we may keep the contact"
    observed = instance.fetch_observations(dg.AssetKey("bigquery_deleted_contacts"), limit=1).records
    assert observed, "and where it began was seen"
    for asset in ("daemons/contact_deletion", "devices", "audit_log"):
        assert newest(instance, asset, EMPTY) is None, "nothing was deleted of the other"


def test_a_deletion_ahead_of_the_clock_keeps_the_messages_back(
    spark: SparkSession,
    bigquery: BigQueryStandIn,
    database: Database,
    tenants: Tenants,
    instance: dg.DagsterInstance,
) -> None:
    tenants.query(
        f"""INSERT INTO clientmgr.deleted_contacts (customer_id, contact_id, deleted_at, found_at)
        VALUES ({ORDINARY}, 1, now() + interval '1 hour', now())"""
    )

    result = run_hourly_job(instance)

    assert not result.success
    (check,) = [one for one in result.get_asset_check_evaluations() if one.check_name == "nothing_from_the_future"]
    assert (check.passed, check.severity, check.blocking) == (False, dg.AssetCheckSeverity.ERROR, True)
    assert newest(instance, "contact_deletion_messages", ORDINARY) is None
    assert published(database) == []
