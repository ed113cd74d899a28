"""Failures, the daemons' health, and Dagster's own settings, on Dagster's PostgreSQL storage."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._daemon.types import DaemonHeartbeat

from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.local.processes.programs import config_file
from clientmgr.operations.dagster_standing import dagster_standing
from clientmgr.operations.nightly_jobs import DAGSTER_JOBS, NightlyWork, nightly_work
from clientmgr.tenants.schema_manager import TenantSchemaManager
from clientmgr_dagster.defs.operations.audit_verification import audit_verification
from clientmgr_dagster.defs.operations.failures import run_failure_sensor
from clientmgr_dagster.defs.tenancy.assets import tenant_schema
from clientmgr_dagster.resources import TenantsResource
from clientmgr_dagster.runs.wanted import asking_whether_wanted

Query = Callable[..., list[tuple[Any, ...]]]

RESOURCES = {"tenants": TenantsResource()}


def test_our_dagster_yaml_says_what_it_means(stored: dg.DagsterInstance) -> None:
    assert (stored.run_retries_enabled, stored.run_retries_max_retries) == (True, 3), "backfills' runs too"
    queue = stored.get_concurrency_config().run_queue_config
    assert queue is not None
    waits_s = queue.max_user_code_failure_retries * queue.user_code_failure_retry_delay
    assert waits_s >= 600, "a run waits in the queue for a code server that is away"
    assert queue.max_concurrent_runs == 6
    assert stored.run_coordinator.dequeue_interval_seconds == 3  # type: ignore[attr-defined]  # of the queued one
    assert not stored.run_retries_retry_on_asset_or_op_failure
    assert stored.run_monitoring_enabled
    assert stored.run_monitoring_max_runtime_seconds == 4 * 3600
    pools = stored.get_concurrency_config().pool_config
    assert (pools.default_pool_limit, str(pools.pool_granularity)) == (2, "PoolGranularity.RUN")


def test_our_workspace_is_the_code_server_at_its_socket_and_nobody_starts_one_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DAGSTER_CODE_SERVER_SOCKET", "/run/code.sock")
    (origin,) = WorkspaceFileTarget([str(config_file("workspace.yaml"))]).create_origins()
    assert isinstance(origin, GrpcServerCodeLocationOrigin)
    assert (origin.socket, origin.location_name) == ("/run/code.sock", "client_manager")


def test_a_run_is_wanted_until_it_is_stopped_and_a_storage_that_is_away_is_no_answer(
    stored: dg.DagsterInstance, query: Query
) -> None:
    run_id = stored.create_run_for_job(dg.GraphDefinition("nothing").to_job()).run_id
    with asking_whether_wanted(stored, run_id) as is_wanted:
        assert is_wanted()
        query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'run_status'")
        assert is_wanted(), "on a new connection"
        query("ALTER TABLE dagster.runs RENAME TO away")
        with pytest.raises(ConnectionError):
            is_wanted()
        query("ALTER TABLE dagster.away RENAME TO runs")
        stored.report_run_canceled(stored.get_runs()[0])
        assert not is_wanted()
    with asking_whether_wanted(stored, "deleted") as is_wanted:
        assert not is_wanted()


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


@dg.op(config_schema={"succeed": bool})
def succeeds_where_told(context: dg.OpExecutionContext) -> None:
    if not context.op_config["succeed"]:
        raise RuntimeError("told to fail")


@dg.job(name="orphan_deletion_job")
def now_and_then() -> None:
    succeeds_where_told()


def test_the_newest_run_of_each_kind_and_the_daemon_s_life_are_read_from_dagster_s_own_tables(
    stored: dg.DagsterInstance, settings: Settings, query: Query
) -> None:
    def run(*, succeed: bool) -> str:
        config = {"ops": {"succeeds_where_told": {"config": {"succeed": succeed}}}}
        return now_and_then.execute_in_process(config, instance=stored, raise_on_error=False).run_id

    def work() -> NightlyWork:
        with Database.from_settings(settings).connect(Role.READER) as connection:
            found = nightly_work(connection, dagster_standing(settings, list(DAGSTER_JOBS.values())).runs)
        return next(one for one in found if one.name == "orphan deletion")

    assert work().state == "never"
    succeeded = run(succeed=True)
    assert (work().state, work().succeeded_run, work().failed_at) == ("fresh", succeeded, None)
    failed = run(succeed=False)
    assert (work().state, work().succeeded_run, work().failed_run) == ("failed", succeeded, failed)
    assert datetime.now(UTC) - timedelta(minutes=1) < (work().failed_at or datetime.max.replace(tzinfo=UTC))
    run(succeed=True)
    assert work().state == "fresh"

    assert not dagster_standing(settings, []).daemon_lives
    beat = DaemonHeartbeat(time.time(), "SENSOR", "an-id", None)
    stored.add_daemon_heartbeat(beat)
    stored.add_daemon_heartbeat(beat._replace(timestamp=time.time() - 3600, daemon_type="SCHEDULER"))
    standing = dagster_standing(settings, [])
    assert (standing.daemon_lives, standing.stuck) == (True, ["scheduler"])
    query('UPDATE dagster.daemon_heartbeats SET "timestamp" = "timestamp" - interval \'5 minutes\'')
    assert not dagster_standing(settings, []).daemon_lives


def test_without_dagster_s_tables_it_is_said_that_nothing_is_known(settings: Settings) -> None:
    assert "Dagster has not run yet" in dagster_standing(settings, []).problem


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
