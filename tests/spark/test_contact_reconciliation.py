"""Reconciliation of deleted contacts: whatever BigQuery says, and however late, no deleted contact keeps devices."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.base.stopping import StoppedError
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.contact_deletions.bigquery import everything_query, stored_result
from clientmgr.contact_deletions.publishing import deletion_message, watermarks
from clientmgr.contact_deletions.reconciliation import publish_unerased, record_search, results_of
from clientmgr.contracts import topics
from clientmgr.local.standins.bigquery import BigQueryStandIn
from clientmgr_dagster.defs.contact_deletion.assets import contact_deletions
from clientmgr_dagster.defs.contact_deletion.reconciliation import (
    contact_deletion_reconciliation,
    nothing_missed_for_two_nights,
)
from clientmgr_dagster.defs.contact_deletion.schedules import nightly_contact_deletion_reconciliation
from clientmgr_dagster.partitions import RETRIED, partition_range
from clientmgr_dagster.resources import TenantsResource, bigquery_resource
from clientmgr_dagster.spark import contact_deletion_reconciliation as search
from clientmgr_dagster.spark.deleted_contacts import SCHEMA
from clientmgr_dagster.spark.session import SparkResource
from streaming import contact_deletion, writer
from tests.spark.calling import requests_of
from tests.spark.deletions import START, TABLE, add_one, published
from tests.spark.tenants import EMPTY, HUGE, ORDINARY, Tenants
from tests.streaming.rig import Rig, event, read_topic

EVERYBODY = (ORDINARY, HUGE, EMPTY)
LINKED_AT = round((START - timedelta(days=400)).timestamp() * 1000)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("tenants", [str(customer) for customer in EVERYBODY])
        yield instance


@pytest.fixture
def everybody(tenants: Tenants) -> Tenants:
    tenants.activate(*EVERYBODY)
    return tenants


def link(tenants: Tenants, links: Mapping[CustomerId, list[int]]) -> None:
    """A device for each of these contacts, by the writer."""
    events = [
        event("contactLinked", customer=customer, client=f"c{contact}", at=LINKED_AT, contactId=contact)
        for customer, contacts in links.items()
        for contact in contacts
    ]

    async def write() -> None:
        async with PostgresBroker(tenants.database, tenants.settings) as broker:
            rig = Rig(tenants.settings, tenants.database, broker)
            await rig.publish(*events)
            await rig.burst(writer.DAEMON)

    asyncio.run(write())


def carry_out(tenants: Tenants) -> None:
    """The worker does all that is published."""

    async def work() -> None:
        async with PostgresBroker(tenants.database, tenants.settings) as broker:
            await Rig(tenants.settings, tenants.database, broker).burst(contact_deletion.DAEMON)

    asyncio.run(work())


def materialize(instance: dg.DagsterInstance, *assets: dg.AssetsDefinition) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        assets or [contact_deletion_reconciliation],
        instance=instance,
        resources={"tenants": TenantsResource(), "spark": SparkResource(), "bigquery": bigquery_resource},
        tags=partition_range([str(ORDINARY), str(EMPTY)]),
        raise_on_error=False,
    )


def numbers(result: dg.ExecuteInProcessResult) -> dict[str | None, tuple[object, ...]]:
    """Of each partition: contacts found, missed among them, messages."""
    return {
        one.partition: tuple(one.metadata[name].value for name in ("dagster/row_count", "missed", "messages"))
        for one in result.asset_materializations_for_node("contact_deletion_reconciliation")
    }


def check(result: dg.ExecuteInProcessResult) -> bool:
    (evaluation,) = result.get_asset_check_evaluations()
    return evaluation.passed


def contacts(tenants: Tenants, customer: int) -> list[int]:
    found = tenants.query(f'SELECT contact_id FROM "tenant_{customer}".devices ORDER BY 1')
    return [contact for (contact,) in found]


def let_a_day_pass(tenants: Tenants) -> None:
    tenants.query("UPDATE clientmgr.contact_deletion_reconciliations SET searched_at = searched_at - interval '1 day'")


def test_a_row_that_came_thirty_hours_late_is_found_published_and_carried_out(
    spark: SparkSession, bigquery: BigQueryStandIn, database: Database, everybody: Tenants, instance: dg.DagsterInstance
) -> None:
    link(everybody, {ORDINARY: [1, 2, 3], HUGE: [1, 2]})
    add_one(bigquery, ORDINARY, 2, START)
    assert materialize(instance, contact_deletions).success
    carry_out(everybody)
    add_one(bigquery, ORDINARY, 1, START - timedelta(hours=30))
    assert materialize(instance, contact_deletions).success
    assert published(database) == [(ORDINARY, 2)], "the hourly fetch never sees it"

    first = materialize(instance)

    assert first.success
    assert numbers(first) == {str(ORDINARY): (1, 1, 1), str(HUGE): (0, 0, 0), str(EMPTY): (0, 0, 0)}
    late = deletion_message(ORDINARY, 1, START - timedelta(hours=30))
    assert read_topic(database, topics.CONTACT_DELETION)[-1].data == late.data
    assert everybody.query("SELECT count(*) FROM clientmgr.unerased_contacts") == [(0,)], "no id stays"
    with database.connect(Role.READER) as connection:
        assert watermarks(connection, [ORDINARY]) == {ORDINARY: START}

    carry_out(everybody)
    second = materialize(instance)

    assert numbers(second)[str(ORDINARY)] == (0, 0, 0)
    assert check(second)
    assert (contacts(everybody, ORDINARY), contacts(everybody, HUGE)) == ([3], [1, 2])


@pytest.mark.parametrize("broadcast_rows", [search.BROADCAST_ROWS, 0], ids=["broadcast", "shuffled"])
def test_everything_that_is_due_is_compared_and_nothing_else_is_published(
    spark: SparkSession,
    bigquery: BigQueryStandIn,
    database: Database,
    everybody: Tenants,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    broadcast_rows: int,
) -> None:
    monkeypatch.setattr(search, "BROADCAST_ROWS", broadcast_rows)
    link(everybody, {ORDINARY: [1, 2, 3, 4], HUGE: [1, 5]})
    add_one(bigquery, ORDINARY, 1, datetime(1971, 1, 1, tzinfo=UTC))
    for _ in range(2):
        add_one(bigquery, ORDINARY, 2, START)
    add_one(bigquery, ORDINARY, 2, START + timedelta(hours=1))  # deleted again
    add_one(bigquery, ORDINARY, 3, datetime.now(UTC) + timedelta(days=1))
    add_one(bigquery, ORDINARY, 5, START)  # another customer's contact has this number
    add_one(bigquery, HUGE, 5, START)
    add_one(bigquery, 99, 1, START)

    result = materialize(instance)

    assert published(database) == [(ORDINARY, 1), (ORDINARY, 2), (ORDINARY, 2), (HUGE, 5)]
    assert numbers(result) == {str(ORDINARY): (2, 2, 3), str(HUGE): (1, 1, 1), str(EMPTY): (0, 0, 0)}
    events = "".join(str(entry) for entry in instance.all_logs(result.run_id))
    assert "contact_id" not in events


@pytest.mark.parametrize(("broadcast", "join"), [(True, "BroadcastHashJoin"), (False, "SortMergeJoin")])
def test_the_deleted_side_is_broadcast_where_it_is_small(spark: SparkSession, broadcast: bool, join: str) -> None:
    contacts = spark.createDataFrame(
        [(11, 1, None), (12, None, "away")], "customer_id long, contact_id long, error string"
    )
    deleted = spark.createDataFrame([(11, 1, START), (11, 2, START), (12, 1, START)], SCHEMA)

    found = search.unerased(contacts, deleted, found_at=START, broadcast=broadcast)

    assert {(row.customer_id, row.contact_id, row.error) for row in found.collect()} == {
        (11, 1, None),
        (12, None, "away"),
    }
    assert join in found._jdf.queryExecution().executedPlan().toString()


def test_one_night_may_be_lag_and_two_are_not(
    spark: SparkSession, bigquery: BigQueryStandIn, everybody: Tenants, instance: dg.DagsterInstance
) -> None:
    link(everybody, {ORDINARY: [1], HUGE: [1]})
    add_one(bigquery, ORDINARY, 1, START)
    assert check(materialize(instance))
    assert check(materialize(instance)), "twice in one night is one night"

    let_a_day_pass(everybody)
    second = materialize(instance)

    assert not check(second)
    (evaluation,) = second.get_asset_check_evaluations()
    assert evaluation.metadata["missed"].value == 1
    assert str(ORDINARY) in str(evaluation.metadata["tenants"].value)

    carry_out(everybody)
    assert check(materialize(instance)), "what is carried out is forgiven"
    let_a_day_pass(everybody)
    add_one(bigquery, HUGE, 1, START)
    assert check(materialize(instance)), "a clean night lies between"


def test_what_the_hourly_fetch_has_yet_to_come_to_is_published_and_not_called_missed(
    spark: SparkSession, bigquery: BigQueryStandIn, database: Database, everybody: Tenants, instance: dg.DagsterInstance
) -> None:
    link(everybody, {ORDINARY: [1, 2, 3]})
    now = datetime.now(UTC)
    add_one(bigquery, ORDINARY, 9, now - timedelta(hours=2))
    materialize(instance, contact_deletions)
    add_one(bigquery, ORDINARY, 1, now - timedelta(minutes=5))
    add_one(bigquery, ORDINARY, 2, now - timedelta(hours=3))

    assert numbers(materialize(instance))[str(ORDINARY)] == (2, 1, 2)

    # An hourly fetch that has stood still for longer than its overlap is on its way to nothing.
    everybody.query("UPDATE clientmgr.contact_deletion_watermarks SET deleted_at = deleted_at - interval '9 days'")
    add_one(bigquery, ORDINARY, 3, now - timedelta(days=2))
    assert numbers(materialize(instance))[str(ORDINARY)] == (3, 1, 3)


def test_tenants_that_fail_are_reported_and_cost_only_themselves(
    spark: SparkSession, bigquery: BigQueryStandIn, database: Database, everybody: Tenants, instance: dg.DagsterInstance
) -> None:
    link(everybody, {ORDINARY: [1], HUGE: [1], EMPTY: [1]})
    for customer in EVERYBODY:
        add_one(bigquery, customer, 1, START)
    everybody.break_tenant(HUGE)
    everybody.query(
        """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$BEGIN RAISE 'not this one' USING DETAIL = 'contact 4711'; END$$;
        CREATE TRIGGER refuse BEFORE DELETE ON clientmgr.unerased_contacts
        FOR EACH ROW WHEN (old.customer_id = 11) EXECUTE FUNCTION refuse()"""
    )

    result = materialize(instance)

    assert not result.success
    assert published(database) == [(EMPTY, 1)]
    assert numbers(result) == {str(EMPTY): (1, 1, 1)}
    failures = dict(everybody.query("SELECT customer_id, error FROM clientmgr.batch_failures"))
    assert failures.keys() == {ORDINARY, HUGE}
    assert "does not exist" in failures[HUGE]
    assert failures[ORDINARY] == "not this one (P0001)", "a detail may name a contact"
    (failure,) = result.filter_events(lambda event: event.is_step_failure)
    assert "2 of 3 tenants" in str(failure.step_failure_data.user_failure_data)

    everybody.mend_tenant(HUGE)
    everybody.query("DROP TRIGGER refuse ON clientmgr.unerased_contacts")
    carry_out(everybody)
    assert numbers(materialize(instance)) == {str(ORDINARY): (1, 1, 1), str(HUGE): (1, 1, 1), str(EMPTY): (0, 0, 0)}


KILLED_WHILE_PUBLISHING = """
import asyncio, os, signal
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.contact_deletions.reconciliation import publish_unerased
from clientmgr.base.database import Database
from clientmgr.base.settings import load_settings

settings = load_settings()
database = Database.from_settings(settings)
batches = 0

class Dying(PostgresBroker):
    async def publish(self, topic, messages, *, connection=None):
        global batches
        batches += 1
        await super().publish(topic, messages, connection=connection)
        if batches == 3:
            os.kill(os.getpid(), signal.SIGKILL)  # published, not committed

async def main():
    async with Dying(database, settings) as broker:
        await publish_unerased(broker, database, [11], run_id="r", batch_size=100)

asyncio.run(main())
"""


@pytest.mark.server
def test_killed_between_publishing_and_recording_it_loses_and_doubles_nothing(
    database: Database, settings: Settings, tenants: Tenants
) -> None:
    tenants.activate(ORDINARY)
    tenants.query(
        """INSERT INTO clientmgr.unerased_contacts SELECT 11, n, now(), now() FROM generate_series(1, 1000) AS n;
        INSERT INTO clientmgr.contact_deletion_reconciliations VALUES (11, 'r', now(), 1000, 1000)"""
    )

    died = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_PUBLISHING],
        env={**os.environ, **settings.environment()},
        check=False,
        capture_output=True,
    )

    assert died.returncode == -signal.SIGKILL, died.stderr
    assert len(published(database)) == 200
    assert recorded(tenants) == [(1000, 200)]

    async def publish_rest() -> None:
        async with PostgresBroker(database, settings) as broker:
            await publish_unerased(broker, database, [ORDINARY], run_id="r")

    asyncio.run(publish_rest())
    assert published(database) == [(ORDINARY, n) for n in range(1, 1001)]
    assert recorded(tenants) == [(1000, 1000)]


@pytest.mark.server
def test_stopped_it_publishes_no_further_batch_and_counts_what_it_published(
    database: Database, settings: Settings, tenants: Tenants
) -> None:
    tenants.activate(ORDINARY)
    tenants.query(
        """INSERT INTO clientmgr.unerased_contacts SELECT 11, n, now(), now() FROM generate_series(1, 1000) AS n;
        INSERT INTO clientmgr.contact_deletion_reconciliations VALUES (11, 'r', now(), 1000, 1000)"""
    )
    looks = iter([True, True])

    def still_wanted() -> bool:
        return next(looks, False)

    async def publish() -> None:
        async with PostgresBroker(database, settings) as broker:
            await publish_unerased(broker, database, [ORDINARY], run_id="r", batch_size=100, still_wanted=still_wanted)

    with pytest.raises(StoppedError, match="200 deletions are published"):
        asyncio.run(publish())

    assert len(published(database)) == 200
    assert recorded(tenants) == [(1000, 200)]


def recorded(tenants: Tenants) -> list[tuple[int, int]]:
    return tenants.query("SELECT found, published FROM clientmgr.contact_deletion_reconciliations")


def test_a_search_by_a_step_that_is_tried_again_counts_once(
    spark: SparkSession, bigquery: BigQueryStandIn, everybody: Tenants, settings: Settings
) -> None:
    link(everybody, {ORDINARY: [1, 2]})
    add_one(bigquery, ORDINARY, 1, START)
    resource = TenantsResource()
    for _ in range(2):
        now = datetime.now(UTC)
        query = everything_query(TABLE, [ORDINARY], until=now)
        with (
            contextlib.closing(bigquery.client()) as client,
            stored_result(client, query, scratch_dataset=resource.settings.bigquery_scratch_dataset) as stored,
        ):
            search.find_unerased(
                spark, resource.database, resource.settings, [ORDINARY], stored, searched_at=now, run_id="same"
            )
        with resource.database.connect(Role.WRITER) as connection:
            record_search(connection, [ORDINARY], run_id="same", searched_at=now, overlap=timedelta(hours=24))
            (result,) = results_of(connection, [ORDINARY], run_id="same")
        assert (result.found, result.missed, result.published) == (1, 1, 0)
    assert everybody.query("SELECT contact_id FROM clientmgr.unerased_contacts") == [(1,)]


def test_the_schedule_asks_for_ranges_and_needs_a_project(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, kept_instance: dg.DagsterInstance
) -> None:
    kept_instance.add_dynamic_partitions("tenants", [str(number) for number in range(1, 601)])

    def requests(project: str) -> list[dg.RunRequest | dg.SkipReason]:
        for name, value in settings.model_copy(update={"bigquery_project": project}).environment().items():
            monkeypatch.setenv(name, value)
        with dg.build_schedule_context(
            instance=kept_instance, scheduled_execution_time=START, resources={"tenants": TenantsResource()}
        ) as context:
            return requests_of(nightly_contact_deletion_reconciliation, context)

    ranges = [request.tags for request in requests("p") if isinstance(request, dg.RunRequest)]
    assert ranges == [RETRIED | partition_range(["1", "500"]), RETRIED | partition_range(["501", "600"])]
    monkeypatch.delenv("BIGQUERY_PROJECT")
    assert [type(one) for one in requests("")] == [dg.SkipReason]


def test_without_any_search_nothing_is_missed(tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in tenants.settings.environment().items():
        monkeypatch.setenv(name, value)
    tenants.activate(ORDINARY)
    assert nothing_missed_for_two_nights(TenantsResource()).passed
