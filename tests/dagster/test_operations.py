"""Pruning, failures, the daemons' health, and Dagster's own settings, on Dagster's PostgreSQL storage."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.contracts import daemons, topics
from clientmgr.local.processes.programs import config_file
from clientmgr.operations.daemon_health import READS
from clientmgr.operations.dagster_addresses import dagster_database_url
from clientmgr.tenants.schema_manager import TenantSchemaManager
from clientmgr_dagster.defs.operations.audit_verification import audit_verification
from clientmgr_dagster.defs.operations.daemon_health import daemon_health_sensor
from clientmgr_dagster.defs.operations.failures import run_failure_sensor
from clientmgr_dagster.defs.operations.pruning import prune_event_log_job
from clientmgr_dagster.defs.tenancy.assets import tenant_schema
from clientmgr_dagster.resources import TenantsResource

Query = Callable[..., list[tuple[Any, ...]]]

RESOURCES = {"tenants": TenantsResource()}
SCHEMA = dg.AssetKey("tenant_schema")


@pytest.fixture
def stored(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """An instance as `up` configures it: our dagster.yaml, PostgreSQL storage."""
    monkeypatch.setenv("DAGSTER_POSTGRES_URL", dagster_database_url(settings))
    monkeypatch.setenv("DAGSTER_ARTIFACTS_DIR", str(tmp_path / "dagster"))
    (tmp_path / "dagster").mkdir()
    (tmp_path / "dagster" / "dagster.yaml").write_text(config_file("dagster.yaml").read_text())
    with dg.DagsterInstance.from_config(str(tmp_path / "dagster")) as instance:
        yield instance


def test_our_dagster_yaml_says_what_it_means(stored: dg.DagsterInstance) -> None:
    assert (stored.run_retries_enabled, stored.run_retries_max_retries) == (True, 3), "backfills' runs too"
    queue = stored.get_concurrency_config().run_queue_config
    assert queue is not None
    waits_s = queue.max_user_code_failure_retries * queue.user_code_failure_retry_delay
    assert waits_s >= 600, "a run waits in the queue for a code server that is away"
    assert queue.max_concurrent_runs == 6
    assert stored.run_coordinator.dequeue_interval_seconds == 1  # type: ignore[attr-defined]  # of the queued one
    assert not stored.run_retries_retry_on_asset_or_op_failure
    assert stored.run_monitoring_enabled
    assert stored.run_monitoring_max_runtime_seconds == 4 * 3600
    pools = stored.get_concurrency_config().pool_config
    assert (pools.default_pool_limit, str(pools.pool_granularity)) == (2, "PoolGranularity.RUN")


def test_pruning_keeps_what_tells_the_present_state_of_every_partition(
    stored: dg.DagsterInstance, manager: TenantSchemaManager, query: Query
) -> None:
    manager.activate([1, 2], actor="test")
    stored.add_dynamic_partitions("tenants", ["1", "2"])

    def materialise(key: str) -> str:
        return dg.materialize([tenant_schema], partition_key=key, instance=stored, resources=RESOURCES).run_id

    old = [materialise("1"), materialise("1"), materialise("2")]
    query('UPDATE dagster.event_logs SET "timestamp" = "timestamp" - interval \'40 days\'')
    new = materialise("1")
    before: dict[str, int] = dict(query("SELECT run_id, count(*) FROM dagster.event_logs GROUP BY run_id"))

    result = prune_event_log_job.execute_in_process(instance=stored, resources=RESOURCES)

    left: dict[str, int] = dict(query("SELECT run_id, count(*) FROM dagster.event_logs GROUP BY run_id"))
    assert set(left) == {old[2], new, result.run_id}, "of the old ones, only what tells partition 2's state is left"
    assert left[old[2]] < 5 < left[new]
    assert left[new] == before[new]
    assert stored.get_materialized_partitions(SCHEMA) == {"1", "2"}
    newest = stored.get_latest_materialization_event(SCHEMA)
    assert newest is not None
    assert newest.run_id == new
    deleted = query(
        "SELECT count(*) FROM dagster.asset_event_tags AS t WHERE NOT EXISTS "
        "(SELECT FROM dagster.event_logs AS e WHERE e.id = t.event_id)"
    )
    assert deleted == [(0,)], "no tag of an event that is gone"
    count = query("SELECT count(*) FROM dagster.event_logs WHERE run_id <> %s", result.run_id)
    prune_event_log_job.execute_in_process(instance=stored, resources=RESOURCES)
    assert query("SELECT count(*) FROM dagster.event_logs WHERE run_id = ANY(%s)", [*old, new]) == count


def test_the_audit_log_is_verified_and_what_came_of_it_is_remembered(
    instance: dg.DagsterInstance, manager: TenantSchemaManager, query: Query
) -> None:
    manager.activate([1, 2], actor="test")

    looked_at: list[tuple[object, ...]] = []

    def verified() -> list[bool]:
        result = dg.materialize([audit_verification], instance=instance, resources=RESOURCES)
        (event,) = result.asset_materializations_for_node("audit_verification")
        looked_at.append(tuple(event.metadata[name].value for name in ("rows", "chains", "anchors")))
        return [check.passed for check in result.get_asset_check_evaluations()]

    assert verified() == [True]
    query("ALTER TABLE clientmgr.audit_log DISABLE TRIGGER USER")
    query("UPDATE clientmgr.audit_log SET actor = 'nobody' WHERE customer_id = 2 AND seq = 1")
    assert verified() == [False]
    assert looked_at == [(3, 3, 0), (4, 3, 1)], "the first one began the anchors, which is a row of its own"
    (first, second) = query(
        "SELECT findings, first_findings, rows, anchors FROM clientmgr.audit_verifications ORDER BY id"
    )
    assert first == (0, [], 3, 0)
    assert (second[0], second[2:]) == (3, (4, 1)), "two triggers and a row"
    assert {"customer_id": 2, "seq": 1, "problem": "row changed", "kind": "row"} in second[1]


class Webhook(HTTPServer):
    """Takes what is posted to it, after refusing it once."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []
        self.refusals = 1
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/secret"


class _Handler(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:  # http.server's name
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.refusals:
            self.server.refusals -= 1
            self.send_error(503)
            return
        self.server.taken.append(json.loads(body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002  # http.server's name


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with Webhook() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_failed_run_is_told_to_the_webhook_with_what_and_where(
    instance: dg.DagsterInstance, settings: Settings, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALERT_WEBHOOK_URL", webhook.url)
    instance.add_dynamic_partitions("tenants", ["404"])
    failed = dg.materialize(
        [tenant_schema], partition_key="404", instance=instance, resources=RESOURCES, raise_on_error=False
    )
    context = dg.build_run_status_sensor_context(
        sensor_name="run_failure_sensor",
        dagster_event=failed.get_run_failure_event(),
        dagster_instance=instance,
        dagster_run=failed.dagster_run,
        resources=RESOURCES,
    ).for_run_failure()

    run_failure_sensor(context)

    (told,) = webhook.taken
    assert told["run_id"] == failed.run_id
    assert told["partition"] == "404"
    assert told["url"] == f"http://127.0.0.1:3000/runs/{failed.run_id}"
    assert told["text"].startswith("tenant_schema of 404 failed: not registered: 404 (http://")


def test_every_daemon_that_up_runs_is_observed() -> None:
    on_no_topic = {"telemetry-writer", "broadcast", "dashboard", "pubsub-gateway"}
    assert set(READS) == {process.name for process in daemons.started()} - on_no_topic


def test_a_daemon_that_leaves_messages_unread_is_shown_as_late(
    instance: dg.DagsterInstance, settings: Settings, database: Database, query: Query
) -> None:
    async def prepare() -> None:
        async with PostgresBroker(database, settings) as broker:
            for topic in (topics.WRITER, topics.REPUBLISHER):
                await broker.ensure_topic(topic)
                await broker.ensure_subscription(topic, topic)
            await broker.publish(topics.WRITER, [Message(b"{}", "1"), Message(b"{}", "2")])

    asyncio.run(prepare())
    query("UPDATE clientmgr.outbox_message_t SET published_at = published_at - interval '1 hour'")

    with dg.build_sensor_context(instance=instance, resources=RESOURCES) as context:
        result = daemon_health_sensor(context)

    assert isinstance(result, dg.SensorResult)
    seen = {event.asset_key.path[-1]: event.metadata for event in result.asset_events}
    assert {name: metadata["state"].value for name, metadata in seen.items()} == {
        **{name.replace("-", "_"): "never started" for name in READS},
        "writer": "late",
        "republisher": "keeps up",
    }
    assert (seen["writer"]["unread"].value, seen["republisher"]["unread"].value) == (2, 0)
    assert 3599 < float(str(seen["writer"]["oldest_unread_s"].value)) < 3700
