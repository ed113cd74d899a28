"""Reading tenants with Spark: the same rows as SQL gives, from few tasks, and nobody learns the password."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import InvalidInputError
from clientmgr.base.settings import Settings
from clientmgr_dagster.spark.devices import read_devices, reading_conninfo
from clientmgr_dagster.spark.tenant_source import Request, read_tenants
from tests.spark.tenants import BROKEN, EMPTY, HUGE, ORDINARY, Tenants


def test_reads_what_sql_reads_from_several_tenants_in_few_tasks(
    spark: SparkSession, database: Database, settings: Settings, tenants: Tenants
) -> None:
    tenants.make_all(huge=2000)
    tenants.mend_tenant(BROKEN)
    tenants.add_devices(BROKEN, 5)

    columns = ["application_code", "client_id", "contact_id", "push_enabled", "attributes", "created_at"]
    devices = read_devices(spark, database, settings, (ORDINARY, HUGE, EMPTY, BROKEN), columns)

    assert devices.rdd.getNumPartitions() == settings.spark_partitions
    found = sorted(tuple(row) for row in devices.withColumn("created_at", F.unix_micros("created_at")).collect())
    expected = []
    for customer in (ORDINARY, HUGE, EMPTY, BROKEN):
        expected += tenants.query(
            f"""SELECT {customer}, application_code, client_id, contact_id, push_enabled, attributes::text,
                (extract(epoch FROM created_at) * 1000000)::bigint FROM "tenant_{customer}".devices"""
        )
    assert found == sorted(expected)


def test_filters_and_columns_are_left_to_postgresql(
    spark: SparkSession, database: Database, settings: Settings, tenants: Tenants
) -> None:
    tenants.activate(ORDINARY, EMPTY)
    tenants.add_devices(ORDINARY, 200)
    before = datetime.now(UTC) - timedelta(days=30)
    devices = read_devices(
        spark, database, settings, (ORDINARY, EMPTY), ["client_id", "contact_id", "silent_since", "platform"]
    )

    orphans = devices.filter(
        F.col("contact_id").isNull()
        & (F.col("silent_since") < F.lit(before))
        & F.col("platform").isin("ios", "web")
        & (F.col("customer_id") == int(ORDINARY))
    )

    expected = tenants.query(
        """SELECT client_id FROM "tenant_11".devices
        WHERE contact_id IS NULL AND greatest(orphaned_since, last_seen_at) < %s AND platform IN ('ios', 'web')""",
        (before,),
    )
    assert sorted((row.client_id,) for row in orphans.collect()) == sorted(expected)
    assert len(expected) > 5
    plan = orphans._jdf.queryExecution().executedPlan().toString()
    assert "Filter " not in plan, f"Spark filters what PostgreSQL should have:\n{plan}"


def test_what_postgresql_orders_otherwise_is_left_to_spark(
    spark: SparkSession, database: Database, settings: Settings, tenants: Tenants
) -> None:
    tenants.activate(ORDINARY)
    tenants.add_devices(ORDINARY, 30)
    devices = read_devices(spark, database, settings, (ORDINARY,), ["client_id"])

    found = devices.filter((F.col("client_id") > "c2") & F.col("client_id").like("c_%5")).collect()

    assert {row.client_id for row in found} == {"c25"}


def test_a_tenant_that_can_not_be_read_is_a_row_and_the_others_go_on(
    spark: SparkSession, database: Database, settings: Settings, tenants: Tenants
) -> None:
    everybody = tenants.make_all(huge=500)
    devices = read_devices(spark, database, settings, everybody, ["client_id"], failures_as_rows=True)

    rows = devices.collect()

    failed = [row for row in rows if row.error is not None]
    assert [(row.customer_id, row.client_id) for row in failed] == [(BROKEN, None)]
    assert 'relation "tenant_14.devices" does not exist' in failed[0].error
    assert len(rows) - 1 == 700


def test_a_tenant_that_somebody_has_locked_is_not_waited_for(
    spark: SparkSession, database: Database, settings: Settings, tenants: Tenants
) -> None:
    tenants.activate(ORDINARY, EMPTY)
    with database.connect(Role.OWNER) as connection:
        connection.execute('LOCK TABLE "tenant_13".devices')
        devices = read_devices(spark, database, settings, (ORDINARY, EMPTY), ["client_id"], failures_as_rows=True)

        (failed,) = devices.collect()

    assert failed.customer_id == EMPTY
    assert "lock timeout" in failed.error


def test_a_failing_tenant_fails_the_read_where_nobody_asked_for_failures(
    spark: SparkSession, database: Database, settings: Settings, tenants: Tenants
) -> None:
    everybody = tenants.make_all(huge=1)

    with pytest.raises(Exception, match=r"tenant_14.devices"):
        read_devices(spark, database, settings, everybody, ["client_id"]).collect()


def test_the_password_is_in_no_plan_no_log_and_no_ui(
    spark: SparkSession,
    database: Database,
    settings: Settings,
    tenants: Tenants,
    event_log: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    tenants.activate(ORDINARY)
    tenants.add_devices(ORDINARY, 3)
    conninfo = reading_conninfo(database, settings)
    password = conninfo.split("password=")[1].split()[0]
    assert len(password) > 20
    devices = read_devices(spark, database, settings, (ORDINARY,), ["client_id"])

    assert devices.count() == 3
    devices.explain(mode="extended")
    wrong = conninfo.replace("port=", "port=1")
    with pytest.raises(Exception, match="connection") as failure:
        read_tenants(spark, wrong, Request((ORDINARY,), 1), "customer_id bigint").collect()

    shown = capfd.readouterr()
    logged = "".join(file.read_text() for file in event_log.rglob("*") if file.is_file())
    assert "clientmgr_tenants" in logged, "the test looks at the log that Spark's UI is made from"
    assert password not in shown.out + shown.err + logged + str(failure.value)


def test_push_tokens_can_not_be_read(spark: SparkSession, database: Database, settings: Settings) -> None:
    with pytest.raises(InvalidInputError, match="push_token"):
        read_devices(spark, database, settings, (ORDINARY,), ["push_token"])
