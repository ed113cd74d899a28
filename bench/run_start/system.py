"""Dagster's programs on servers of their own, a click and a message, and the events that tell where the time went."""

import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from bench.harness.keys import BENCH_KEY
from bench.harness.measure import Sample, measure
from bench.harness.options import Options
from clientmgr.audit.log import AuditLogger
from clientmgr.base.database import Database, Role
from clientmgr.base.logins import made_logins
from clientmgr.base.settings import Settings, load_settings
from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.contracts.topics import ACTIVATE_CUSTOMER
from clientmgr.local.embedded.stack import EmbeddedStack
from clientmgr.local.processes.dagster_runs import ENDED, DagsterRuns
from clientmgr.local.processes.programs import dagster_programs
from clientmgr.local.processes.shared_spark import shared_spark_programs, with_shared_spark
from clientmgr.local.processes.supervisor import Program
from clientmgr.local.processes.system import choose_ports, running, wait_for_ui
from clientmgr.operations.code_server_socket import code_server_socket
from clientmgr.operations.migrations import migrate_database
from clientmgr.tenants.schema_manager import TenantSchemaManager

TENANT, FIRST_NEW_TENANT = 1, 1000
GIVE_UP_AFTER_S, LOOK_EVERY_S = 300.0, 0.02
EVENTS: Final = """
SELECT dagster_event_type, extract(epoch FROM min("timestamp" AT TIME ZONE 'UTC'))::float8 FROM dagster.event_logs
WHERE run_id = %s AND dagster_event_type IS NOT NULL GROUP BY dagster_event_type
"""
PARTS: Final = (
    ("asked", "PIPELINE_ENQUEUED"),
    ("in the queue", "PIPELINE_STARTING"),
    ("process started", "ENGINE_EVENT"),
    ("definitions and plan", "STEP_START"),
    ("the work", "STEP_SUCCESS"),
)
"""Parts of a run and the event that ends each; the rest is until the asker sees that it is green."""


@dataclass(frozen=True)
class Launched:
    """A run that somebody clicked for: how long it took, and where."""

    sample: Sample
    parts: Mapping[str, float]


class DagsterSystem:
    """One tenant, whose partition Dagster knows."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings, self._database = settings, database
        self._runs = DagsterRuns(settings, "bench")
        self._activated = 0

    def prepare(self) -> None:
        TenantSchemaManager(self._database, self._settings).activate([TENANT], actor="bench")
        _until(lambda: str(TENANT) in self._runs.partitions("tenant_schema"), "Dagster knows the tenant")
        _until(lambda: not self._query(UNFINISHED), "nothing runs")

    def click(self, asset: str) -> Launched:
        """Materialise the tenant's partition of an asset as the UI does."""
        began = time.time()
        run_ids: list[str] = []

        def work() -> None:
            run_ids.append(self._runs.materialise(asset, str(TENANT)))
            _until(lambda: self._runs.status(run_ids[0]) in ENDED, "the run ends")

        sample = measure(work)
        if self._runs.status(run_ids[0]) != "SUCCESS":
            raise RuntimeError(f"run {run_ids[0]} did not succeed")
        moments = dict(self._query(EVENTS, run_ids[0]))
        parts, before = {}, began
        for name, event in PARTS:
            parts[name], before = moments[event] - before, moments[event]
        return Launched(sample, {**parts, "until green": began + sample.wall_s - before})

    def activate(self, *, after_s: float) -> Sample:
        """Ask for a new customer by message, and wait until it is active."""
        time.sleep(after_s)
        self._activated += 1
        customer = FIRST_NEW_TENANT + self._activated
        active = "SELECT 1 FROM clientmgr.tenants WHERE customer_id = %s AND status = 'active'"

        def work() -> None:
            asyncio.run(self._publish(customer))
            _until(lambda: self._query(active, customer), "the customer is active")

        return measure(work)

    async def _publish(self, customer: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        body = {"eventId": f"bench-{customer}", "customerId": customer, "occurredAt": now_ms}
        async with PostgresBroker(self._database, self._settings) as broker:
            await broker.ensure_topic(ACTIVATE_CUSTOMER)
            await broker.publish(ACTIVATE_CUSTOMER, [Message(json.dumps(body).encode(), str(customer))])

    def _query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self._database.connect(Role.OWNER, autocommit=True) as connection:
            return connection.execute(sql.encode(), parameters).fetchall()


UNFINISHED: Final = "SELECT 1 FROM dagster.runs WHERE status NOT IN ('SUCCESS', 'FAILURE', 'CANCELED')"


@contextmanager
def running_dagster(options: Options, *, is_ours: bool) -> Iterator[DagsterSystem]:
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder:
        settings = load_settings(data_dir=Path(folder), audit_hash_key=BENCH_KEY, dagster_port=0, log_level="error")
        with EmbeddedStack(settings) as stack:
            settings = choose_ports(stack.settings)
            database = Database.from_settings(settings)
            migrate_database(database, audit=AuditLogger.from_settings(settings))
            settings = with_shared_spark(made_logins(settings))
            environment = {**os.environ, **settings.environment(), "LOG_FORMAT": "json"}
            programs = dagster_programs(settings, environment)
            spark = shared_spark_programs(settings, environment)
            with running([*spark, *(programs if is_ours else _with_dagsters_own(programs, settings))]):
                wait_for_ui(settings, threading.Event())
                system = DagsterSystem(settings, database)
                system.prepare()
                yield system


def _with_dagsters_own(programs: list[Program], settings: Settings) -> list[Program]:
    ours, *others = programs
    command = [sys.executable, "-m", "dagster", "api", "grpc", "--socket", str(code_server_socket(settings))]
    module = ["-m", "clientmgr_dagster.definitions", "--location-name", "client_manager", "--log-level", "error"]
    return [replace(ours, command=[*command, *module]), *others]


def _until(look: Callable[[], object], what: str) -> None:
    give_up_at = time.monotonic() + GIVE_UP_AFTER_S
    while not look():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"not within {GIVE_UP_AFTER_S:.0f} s: {what}")
        time.sleep(LOOK_EVERY_S)
