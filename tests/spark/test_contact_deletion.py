"""Contact deletion from BigQuery to the topic: pages, watermarks, late rows, nothing lost and nothing twice."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from dagster_gcp import BigQueryResource
from dagster_pyspark import LazyPySparkResource
from google.cloud.bigquery import QueryJobConfig
from pyspark.sql import SparkSession

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import SettingsError
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.base.settings import Settings
from clientmgr.base.stopping import StoppedError
from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.contact_deletions.bigquery import Position, page_parameters, page_query
from clientmgr.contact_deletions.publishing import deletion_message, publish_deletions, watermarks
from clientmgr.local.standins.bigquery import BigQueryStandIn
from clientmgr_dagster.bigquery import DeletedContactsBigQuery
from clientmgr_dagster.defs.contact_deletion.assets import FOUND, contact_deletions
from clientmgr_dagster.defs.contact_deletion.checks import every_deletion_published
from clientmgr_dagster.defs.contact_deletion.schedules import hourly_contact_deletion
from clientmgr_dagster.resources import TenantsResource, bigquery_resource
from clientmgr_dagster.spark.session import SparkResource
from tests.spark.calling import passes, requests_of
from tests.spark.deletions import START, TABLE, add, add_one, published
from tests.spark.tenants import EMPTY, HUGE, ORDINARY, Tenants

OVERLAP = timedelta(hours=24)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("tenants", [str(ORDINARY), str(HUGE), str(EMPTY)])
        yield instance


def materialize(instance: dg.DagsterInstance, *selected: str) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        [contact_deletions],
        instance=instance,
        selection=dg.AssetSelection.assets(*selected) if selected else None,
        resources={"tenants": TenantsResource(), "spark": SparkResource(), "bigquery": bigquery_resource},
        tags={
            "dagster/asset_partition_range_start": str(ORDINARY),
            "dagster/asset_partition_range_end": str(EMPTY),
        },
    )


def observations(result: dg.ExecuteInProcessResult) -> list[dg.AssetObservation]:
    return [event.asset_observation_data.asset_observation for event in result.get_asset_observation_events()]


def test_deletions_come_in_pages_and_are_published_once(
    spark: SparkSession, bigquery: BigQueryStandIn, database: Database, tenants: Tenants, instance: dg.DagsterInstance
) -> None:
    tenants.activate(ORDINARY, HUGE, EMPTY)
    add(bigquery, ORDINARY, 1, 30)
    add(bigquery, HUGE, 1, 500)
    add(bigquery, 99, 1, 5)  # nobody's customer of ours
    bigquery.execute(f"INSERT INTO {TABLE} SELECT * FROM {TABLE} WHERE customer_id = {ORDINARY}")  # twice in there

    result = materialize(instance)

    expected = [(ORDINARY, n) for n in range(1, 31)] + [(HUGE, n) for n in range(1, 501)]
    assert published(database) == expected
    (summary,) = [one for one in observations(result) if one.asset_key == dg.AssetKey(FOUND)]
    assert summary.metadata["rows_in_bigquery"].value == 530
    with database.connect(Role.READER) as connection:
        assert watermarks(connection, [ORDINARY, HUGE, EMPTY]) == {
            ORDINARY: START + timedelta(seconds=30),
            HUGE: START + timedelta(seconds=500),
            EMPTY: None,
        }
    assert passes(every_deletion_published)

    # A day later: new ones, and one that came late, from before the watermark.
    add(bigquery, ORDINARY, 31, 40, day=1)
    add(bigquery, HUGE, 20_000, 20_000)
    add_one(bigquery, ORDINARY, 777, START - timedelta(hours=1))
    materialize(instance)
    materialize(instance)

    more = [*((ORDINARY, n) for n in range(31, 41)), (ORDINARY, 777), (HUGE, 20_000)]
    assert published(database) == sorted(expected + more)
    ((kept,),) = tenants.query(f"SELECT count(*) FROM clientmgr.deleted_contacts WHERE customer_id = {ORDINARY}")
    assert kept == 10, "what is a day behind the watermark is not read again, and not kept"


def test_a_page_that_was_fetched_and_not_published_is_published_by_the_next_run(
    spark: SparkSession, bigquery: BigQueryStandIn, database: Database, tenants: Tenants, instance: dg.DagsterInstance
) -> None:
    tenants.activate(ORDINARY, HUGE, EMPTY)
    add(bigquery, ORDINARY, 1, 10)
    materialize(instance, FOUND)
    with database.connect(Role.READER) as connection:
        assert watermarks(connection, [ORDINARY]) == {ORDINARY: None}, "nothing is published yet"
    assert not passes(every_deletion_published)

    materialize(instance)

    assert published(database) == [(ORDINARY, n) for n in range(1, 11)]


def test_a_deletion_from_the_future_waits_and_holds_up_no_other(
    spark: SparkSession, bigquery: BigQueryStandIn, database: Database, tenants: Tenants, instance: dg.DagsterInstance
) -> None:
    tenants.activate(ORDINARY, HUGE, EMPTY)
    add(bigquery, ORDINARY, 1, 3)
    bigquery.execute(f"INSERT INTO {TABLE} VALUES ({ORDINARY}, 777, TIMESTAMP '2099-01-01 00:00:00+00:00')")
    materialize(instance)
    assert published(database) == [(ORDINARY, n) for n in range(1, 4)]

    add(bigquery, ORDINARY, 4, 6, day=1)
    materialize(instance)

    assert published(database) == [(ORDINARY, n) for n in range(1, 7)]


def test_a_page_ends_with_what_is_due(bigquery: BigQueryStandIn) -> None:
    add(bigquery, ORDINARY, 1, 3)

    def due(until: datetime) -> list[int]:
        with contextlib.closing(bigquery.client()) as client:
            query = page_query(TABLE, {ORDINARY: START}, until=until, after=None, limit=10)
            rows = client.query(query, timeout=30, retry=None, job_retry=None).result(timeout=60)
            return [row["contact_id"] for row in rows]

    assert due(START + timedelta(seconds=2)) == [1, 2]
    assert due(START + timedelta(seconds=3)) == [1, 2, 3]


def rows_of(bigquery: BigQueryStandIn, query: str, after: Position | None) -> list[tuple[int, int, datetime]]:
    with contextlib.closing(bigquery.client()) as client:
        config = QueryJobConfig(query_parameters=page_parameters(after))
        rows = client.query(query, job_config=config, timeout=30, retry=None, job_retry=None).result(timeout=60)
        return [(row["customer_id"], row["contact_id"], row["deleted_at"]) for row in rows]


def test_every_page_has_a_constant_bound_and_together_they_have_what_each_customer_is_read_from(
    bigquery: BigQueryStandIn,
) -> None:
    for customer in (ORDINARY, HUGE, EMPTY):
        add(bigquery, customer, 1, 20)
    since = {ORDINARY: START + timedelta(seconds=12), HUGE: START + timedelta(seconds=4), EMPTY: START}
    until = START + timedelta(seconds=18)
    found: list[tuple[int, int, datetime]] = []
    after = None
    while True:
        query = page_query(TABLE, since, until=until, after=after, limit=7)
        # The smallest of the chunk, as a literal: a bound that comes from the join prunes nothing.
        assert "d.deleted_at >= TIMESTAMP '2026-01-01 00:00:00.000000+00:00'" in query
        assert f"d.customer_id IN ({ORDINARY}, {HUGE}, {EMPTY})" in query
        page = rows_of(bigquery, query, after)
        found += page
        if len(page) < 7:
            break
        last_customer, last_contact, moment = page[-1]
        after = Position(last_customer, moment, last_contact)

    firsts = {ORDINARY: 13, HUGE: 5, EMPTY: 1}
    assert found == [
        (customer, n, START + timedelta(seconds=n)) for customer, first in firsts.items() for n in range(first, 19)
    ]


def test_a_query_that_an_error_may_quote_names_no_contact() -> None:
    after = Position(ORDINARY, START, 987_654_321)

    query = page_query(TABLE, {ORDINARY: START}, until=START, after=after, limit=7)

    assert "987654321" not in query
    assert 987_654_321 in [parameter.value for parameter in page_parameters(after)]


def test_what_is_published_is_kept_as_a_hash_and_known_when_it_is_read_again(
    spark: SparkSession,
    bigquery: BigQueryStandIn,
    database: Database,
    settings: Settings,
    tenants: Tenants,
    instance: dg.DagsterInstance,
) -> None:
    tenants.activate(ORDINARY, HUGE, EMPTY)
    add_one(bigquery, ORDINARY, 987_654_321, START)
    materialize(instance, FOUND)
    waiting = tenants.query("SELECT contact_id, published_at FROM clientmgr.deleted_contacts")
    assert waiting == [(987_654_321, None)]

    runs = [materialize(instance) for _ in range(2)]

    assert published(database) == [(ORDINARY, 987_654_321)]
    expected = KeyedHashes.from_settings(settings).contact(ORDINARY, 987_654_321)
    assert tenants.query("SELECT contact_id, contact_hash FROM clientmgr.deleted_contacts") == [(None, expected)]
    assert tenants.query("SELECT count(*) FROM clientmgr.deleted_contacts_staged") == [(0,)]
    for run in runs:
        events = "".join(str(entry) for entry in instance.all_logs(run.run_id))
        assert str(ORDINARY) in events
        assert "987654321" not in events, "Dagster keeps its events longer than we may keep a deleted contact"


def test_ids_that_a_killed_run_left_are_forgotten_by_the_next(
    database: Database, settings: Settings, tenants: Tenants
) -> None:
    tenants.activate(ORDINARY)
    row = "11, 42, now(), now() - age * interval '1 hour'"
    for table in ("deleted_contacts_staged", "unerased_contacts_staged"):
        names = "customer_id, contact_id, deleted_at, staged_at, found_at, attempt_id"
        tenants.query(
            f"INSERT INTO clientmgr.{table} ({names}) SELECT {row}, now(), 'a' FROM unnest(ARRAY [1, 13]) AS age"
        )
    tenants.query(
        "INSERT INTO clientmgr.unerased_contacts SELECT 11, age, now(), now() - age * interval '1 hour'"
        " FROM unnest(ARRAY [1, 13]) AS age"
    )

    asyncio.run(publish_rest(database, settings))

    for table in ("deleted_contacts_staged", "unerased_contacts_staged", "unerased_contacts"):
        assert tenants.query(f"SELECT count(*) FROM clientmgr.{table}") == [(1,)], table


def test_the_watermark_is_never_ahead_of_now(database: Database, settings: Settings, tenants: Tenants) -> None:
    tenants.activate(ORDINARY)
    for deleted_at in ("now() + interval '1 day'", "now() + interval '2 days'"):
        tenants.query(f"INSERT INTO clientmgr.deleted_contacts VALUES ({ORDINARY}, 1, {deleted_at}, now(), NULL)")
        asyncio.run(publish_rest(database, settings))

    with database.connect(Role.READER) as connection:
        moved = watermarks(connection, [ORDINARY])[ORDINARY]
    assert moved is not None
    assert moved <= datetime.now(UTC)


KILLED_WHILE_PUBLISHING = """
import asyncio, os, signal, sys
from datetime import timedelta
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.contact_deletions.publishing import publish_deletions
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
        await publish_deletions(broker, database, [11], overlap=timedelta(hours=24), batch_size=100)

asyncio.run(main())
"""


def test_killed_in_the_middle_of_publishing_it_loses_and_repeats_nothing(
    database: Database, settings: Settings, tenants: Tenants
) -> None:
    tenants.activate(ORDINARY)
    tenants.query(
        """INSERT INTO clientmgr.deleted_contacts
        SELECT 11, n, now() - interval '1 hour' + n * interval '1 ms', now(), NULL FROM generate_series(1, 1000) AS n"""
    )

    died = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_PUBLISHING],
        env={**os.environ, **settings.environment()},
        check=False,
        capture_output=True,
    )

    assert died.returncode == -signal.SIGKILL, died.stderr
    assert len(published(database)) == 200
    count = asyncio.run(publish_rest(database, settings))
    assert count == {ORDINARY: 800}
    assert published(database) == [(ORDINARY, n) for n in range(1, 1001)]


def test_stopped_it_publishes_no_further_batch_and_the_watermark_is_where_it_got_to(
    database: Database, settings: Settings, tenants: Tenants
) -> None:
    tenants.activate(ORDINARY)
    tenants.query(
        """INSERT INTO clientmgr.deleted_contacts
        SELECT 11, n, now() - interval '1 hour' + n * interval '1 ms', now(), NULL FROM generate_series(1, 1000) AS n"""
    )
    looks = iter([True, True])

    def still_wanted() -> bool:
        return next(looks, False)

    async def publish() -> None:
        async with PostgresBroker(database, settings) as broker:
            await publish_deletions(
                broker, database, [ORDINARY], overlap=OVERLAP, batch_size=100, still_wanted=still_wanted
            )

    with pytest.raises(StoppedError, match="200 deletions are published"):
        asyncio.run(publish())

    assert published(database) == [(ORDINARY, n) for n in range(1, 201)]
    assert asyncio.run(publish_rest(database, settings)) == {ORDINARY: 800}


async def publish_rest(database: Database, settings: Settings) -> dict[CustomerId, int]:
    async with PostgresBroker(database, settings) as broker:
        return await publish_deletions(broker, database, [ORDINARY], overlap=OVERLAP)


def test_a_message_is_what_the_worker_reads_and_always_the_same() -> None:
    message = deletion_message(ORDINARY, 42, START)

    assert message == deletion_message(ORDINARY, 42, START)
    assert isinstance(message, Message)
    assert json.loads(message.data) | {"eventId": ""} == {
        "eventId": "",
        "customerId": 11,
        "contactId": 42,
        "deletedAt": 1767225600000,
    }


def test_a_table_that_is_none_is_refused_by_the_settings_name() -> None:
    with pytest.raises(SettingsError, match="BIGQUERY_DELETED_CONTACTS_TABLE"):
        page_query("x; DROP TABLE y", {ORDINARY: START}, until=START, after=Position(1, START, 1), limit=10)


def test_bigquery_and_spark_are_asked_through_dagster_s_own_integrations() -> None:
    assert issubclass(DeletedContactsBigQuery, BigQueryResource)
    assert issubclass(SparkResource, LazyPySparkResource)


def test_without_a_project_the_schedule_says_so(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, kept_instance: dg.DagsterInstance
) -> None:
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    resources = {"tenants": TenantsResource()}
    with dg.build_schedule_context(
        instance=kept_instance, scheduled_execution_time=START, resources=resources
    ) as context:
        (skipped,) = requests_of(hourly_contact_deletion, context)

    assert isinstance(skipped, dg.SkipReason)
    assert "BIGQUERY_PROJECT" in str(skipped.skip_message)
