"""The same jobs on a real cluster of two workers and through Spark Connect, chosen by settings alone: same results."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from clientmgr.base.database import Role
from clientmgr.base.settings import Settings, load_settings
from clientmgr.local.standins.dynamodb import CREDENTIALS, DynamoDbStandIn
from clientmgr.local.standins.legacy_devices import legacy_items
from tests.spark.cluster import Cluster, running_cluster
from tests.spark.tenants import BROKEN, EMPTY, HUGE, ORDINARY, Tenants

CANDIDATES = """
SELECT customer_id, application_code, client_id, silent_since FROM clientmgr.orphan_candidates ORDER BY 1, 2, 3
"""
REFERENCE = """
SELECT {customer}, application_code, client_id, greatest(orphaned_since, last_seen_at) FROM "tenant_{customer}".devices
WHERE contact_id IS NULL AND greatest(orphaned_since, last_seen_at) < now() - interval '30 days' ORDER BY 2, 3
"""
METRICS = """
SELECT customer_id, status, devices, contacts, sync_status, sync_sampled
FROM clientmgr.dashboard_tenant_metrics ORDER BY customer_id
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Six JVMs, for a minute or three: when asked for."""
    if not os.environ.get("CLUSTER_TESTS"):
        pytest.skip("six JVMs take minutes: `make test-cluster` runs this, or CLUSTER_TESTS=1 with pytest")
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, load_settings(data_dir=folder)) as cluster:
        yield cluster


def run_jobs(settings: Settings, *customers: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.run_jobs", *map(str, customers)],
        env={**os.environ, **CREDENTIALS, **settings.environment()},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def check_results(tenants: Tenants) -> None:
    expected = [row for customer in (ORDINARY, HUGE) for row in tenants.query(REFERENCE.format(customer=customer))]
    assert tenants.query(CANDIDATES) == expected
    assert len(expected) > 300
    ((contacts,),) = tenants.query('SELECT count(DISTINCT contact_id) FROM "tenant_12".devices')
    assert tenants.query(METRICS)[1:] == [
        (HUGE, "ok", 2000, contacts, "in sync", 100),
        (EMPTY, "ok", 0, 0, "in sync", 0),
        (BROKEN, "failed", None, None, "failed", None),
    ]
    assert tenants.query("SELECT customer_id FROM clientmgr.batch_failures") == [(BROKEN,)]


@pytest.mark.parametrize("how", ["as its driver", "through Spark Connect"])
def test_two_workers_give_the_same_results(
    how: str, cluster: Cluster, settings: Settings, tenants: Tenants, dynamodb_stand_in: DynamoDbStandIn
) -> None:
    everybody = tenants.make_all(huge=2000)
    legacy = {"dynamodb_endpoint": dynamodb_stand_in.url, "dynamodb_devices_table": how.replace(" ", "-")}
    dynamodb_stand_in.create_devices_table(legacy["dynamodb_devices_table"])
    with tenants.database.connect(Role.READER) as connection:
        dynamodb_stand_in.put(legacy["dynamodb_devices_table"], list(legacy_items(connection, HUGE)))
    where = (
        {"spark_connect_url": cluster.start_connect_server()}
        if how == "through Spark Connect"
        else {
            "spark_master": cluster.master,
            "spark_conf": {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"},
        }
    )

    run_jobs(settings.model_copy(update=where | legacy), *everybody)

    check_results(tenants)
