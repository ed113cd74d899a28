"""Every batch job gives the same results wherever it runs: in process, through Connect, and by Pipes elsewhere.

The ways that need a cluster of six JVMs run when asked for (`make test-cluster`).
"""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import SparkSession

from clientmgr.base.database import Role
from clientmgr.base.settings import Settings, load_settings
from clientmgr.local.standins.bigquery import BigQueryStandIn
from clientmgr.local.standins.dynamodb import CREDENTIALS, DynamoDbStandIn
from clientmgr.local.standins.legacy_devices import legacy_items
from tests.spark.cluster import Cluster, running_cluster
from tests.spark.deletions import add
from tests.spark.every_job import run_every_job
from tests.spark.tenants import BROKEN, EMPTY, HUGE, ORDINARY, Tenants

EVERYBODY = (ORDINARY, HUGE, EMPTY, BROKEN)
NOW = datetime(2026, 11, 1, 3, 15, tzinfo=UTC)
TABLES = {
    "orphan_candidates": "*",
    "dashboard_tenant_metrics": "customer_id, collected_at, run_id, to_jsonb(dashboard_tenant_metrics) - 'table_bytes'",
    "deleted_contacts": "customer_id, contact_id, deleted_at, contact_hash",
    "unerased_contacts": "*",
    "legacy_devices": "customer_id, device_key, contact_id, item::jsonb, scanned_at",
    "batch_failures": "run_id, step, customer_id, error",
}
"""Result tables, and what of them can be compared: not when a page was stored, nor what autovacuum adds to a table."""
ORPHANS = """
SELECT {customer}, application_code, client_id, greatest(orphaned_since, last_seen_at) FROM "tenant_{customer}".devices
WHERE contact_id IS NULL AND greatest(orphaned_since, last_seen_at) < %s::timestamptz - interval '30 days' ORDER BY 2, 3
"""
LINKED = """
SELECT DISTINCT d.customer_id, d.contact_id FROM clientmgr.deleted_contacts AS d
JOIN "tenant_{customer}".devices AS t ON t.contact_id = d.contact_id WHERE d.customer_id = {customer} ORDER BY 1, 2
"""
CLUSTER_CONF = {
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Six JVMs, for a minute or three: when asked for."""
    if not os.environ.get("CLUSTER_TESTS"):
        pytest.skip("six JVMs take minutes: `make test-cluster` runs this, or CLUSTER_TESTS=1 with pytest")
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, load_settings(data_dir=folder)) as cluster:
        yield cluster


@pytest.fixture
def stores(
    spark: SparkSession,
    bigquery: BigQueryStandIn,
    dynamodb_stand_in: DynamoDbStandIn,
    tenants: Tenants,
    settings: Settings,
) -> Settings:
    """Four tenants in all three stores. The settings say where those are."""
    tenants.make_all(huge=2000)
    add(bigquery, ORDINARY, 1001, 1030)
    add(bigquery, HUGE, 1001, 1450)
    table = f"everywhere-{uuid.uuid4().hex}"  # each test has one of its own in the one stand-in
    dynamodb_stand_in.create_devices_table(table)
    with tenants.database.connect(Role.READER) as connection:
        dynamodb_stand_in.put(table, list(legacy_items(connection, HUGE)))
    legacy = {"dynamodb_endpoint": dynamodb_stand_in.url, "dynamodb_devices_table": table}
    return settings.model_copy(update={**bigquery.settings, **legacy, "contact_deletion_page_size": 400})


def use(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)


def results(tenants: Tenants) -> dict[str, list[tuple[Any, ...]]]:
    queries = {table: f"SELECT {names} FROM clientmgr.{table} ORDER BY 1, 2, 3" for table, names in TABLES.items()}
    return {table: tenants.query(query) for table, query in queries.items()}


def forget(tenants: Tenants) -> None:
    for table in TABLES:
        tenants.query(f"DELETE FROM clientmgr.{table}")


def in_a_process_of_its_own(settings: Settings) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.every_job", NOW.isoformat(), *map(str, EVERYBODY)],
        env={**os.environ, **CREDENTIALS, **settings.environment()},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_in_process_every_job_finds_what_plain_sql_finds(
    stores: Settings, tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, stores)

    pages = run_every_job(EVERYBODY, NOW)

    found = results(tenants)
    assert pages == [400, 80]
    expected = [row for customer in (ORDINARY, HUGE) for row in tenants.query(ORPHANS.format(customer=customer), [NOW])]
    assert [row[:4] for row in found["orphan_candidates"]] == expected
    assert len(expected) > 300
    assert len(found["deleted_contacts"]) == 480
    linked = [row for customer in (ORDINARY, HUGE) for row in tenants.query(LINKED.format(customer=customer))]
    assert [row[:2] for row in found["unerased_contacts"]] == linked
    assert len(linked) > 400
    scanned = {(row[0], row[1].partition("#")[2]) for row in found["legacy_devices"]}
    with_contacts = tenants.query('SELECT client_id FROM "tenant_12".devices WHERE contact_id IS NOT NULL')
    assert scanned == {(HUGE, client) for (client,) in with_contacts}
    counted = tenants.query("SELECT customer_id, status, devices, sync_status FROM clientmgr.dashboard_tenant_metrics")
    assert sorted(counted)[1:] == [
        (HUGE, "ok", 2000, "in sync"),
        (EMPTY, "ok", 0, "in sync"),
        (BROKEN, "failed", None, "failed"),
    ]
    assert {(row[1], row[2]) for row in found["batch_failures"]} == {
        ("orphan_candidates", BROKEN),
        ("contact_deletion_reconciliation", BROKEN),
    }


@pytest.mark.timeout(1500)  # by Pipes every job starts an application of its own
@pytest.mark.parametrize("way", ["as its driver", "through Spark Connect", "by Pipes"])
def test_a_cluster_of_two_workers_gives_the_same_results(
    way: str, cluster: Cluster, stores: Settings, tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, stores)
    run_every_job(EVERYBODY, NOW)
    expected = results(tenants)
    forget(tenants)
    on_the_cluster = {"spark_master": cluster.master, "spark_conf": CLUSTER_CONF}
    where: dict[str, Any] = {
        "as its driver": on_the_cluster,
        "through Spark Connect": {},
        "by Pipes": {**on_the_cluster, "spark_run_by": "submit"},
    }[way]
    if way == "through Spark Connect":
        where = {"spark_connect_url": cluster.start_connect_server()}

    in_a_process_of_its_own(stores.model_copy(update=where))
    if way == "through Spark Connect":
        cluster.stop_connect_server()

    found = results(tenants)
    for table in TABLES:
        assert found[table] == expected[table]
    if way == "by Pipes":
        assert_no_secret_is_shown(cluster, stores)


def assert_no_secret_is_shown(cluster: Cluster, settings: Settings) -> None:
    """What the cluster keeps of an application: logs of master, workers and executors."""
    secrets = [conninfo_to_dict(getattr(settings, f"database_{role}_url"))["password"] for role in ("reader", "writer")]
    kept = "".join(file.read_text(errors="replace") for file in cluster.logs())
    assert "client-manager" in kept, "it is the application's"
    assert not [secret for secret in (*secrets, settings.audit_hash_key.get_secret_value()) if str(secret) in kept]
