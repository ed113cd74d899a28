"""The HTTP intake: single events a second and latency, beside publishing the same messages without HTTP.

The limit is the broker's own group commit in one process, with as many publishers at once as there are connections.
Checked: as many messages are in the log as were answered with 202.
"""

import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from bench.harness.keys import BENCH_KEY
from bench.harness.measure import Sample, ensure_same_work, take_turns
from bench.harness.options import REPOSITORY, Options
from bench.harness.report import Comparison, Line, speed_ratio
from bench.harness.servers import BenchPostgres, bench_postgres
from bench.harness.workers import ready_workers
from clientmgr.audit.log import AuditLogger
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings, load_settings
from clientmgr.contracts.intake_keys import KeyKind
from clientmgr.operations.migrations import migrate_database
from clientmgr.tenants.intake_keys import create_key
from clientmgr.tenants.schema_manager import TenantSchemaManager

CONNECTIONS = 256
CUSTOMER = CustomerId(7)
OURS, LIMIT = "intake, an event a request", "broker.publish, a message a call"
AIM_PER_CORE = 5000
AIM_P99_S = 0.050


@dataclass(frozen=True)
class Stage:
    """A database with a customer, and what is needed to send to it."""

    settings: Settings
    key: str
    port: int


def run(options: Options) -> Iterator[Comparison]:
    events = 5_000 if options.quick else 50_000
    with bench_postgres(options) as server:
        yield _throughput(server, events, min(options.rounds, 3))
        yield _latency(server, seconds=2 if options.quick else 15)


def _throughput(server: BenchPostgres, events: int, rounds: int) -> Comparison:
    samples: dict[str, list[Sample]] = {OURS: [], LIMIT: []}
    per_core = []
    for variant in take_turns([OURS, LIMIT], rounds):
        print(f"intake: throughput: {variant}", file=sys.stderr)
        stage = _prepare(server)
        server.settle()
        if variant == OURS:
            with _serving(stage) as process:
                before = _cpu_s(process.pid)
                report = _load(stage, events=events)
                cpu_s = _cpu_s(process.pid) - before
        else:
            report = _worker(stage, "publish", events=events)
            cpu_s = report["cpuS"]
        samples[variant].append(Sample(report["wallS"], cpu_s))
        ensure_same_work("messages in the log", {"sent": events, variant: _logged(stage)})
        if variant == OURS:
            per_core.append(events / cpu_s)
    lines = tuple(Line(name, tuple(taken)) for name, taken in samples.items())
    half = statistics.median(per_core)
    notes = (
        f"the intake reaches {speed_ratio(lines[0], lines[1]):.0%} of the limit's rate",
        f"aim: {AIM_PER_CORE:,} events for each second of its processor time: {half:,.0f}, "
        + ("met" if half >= AIM_PER_CORE else "missed"),
    )
    return Comparison(f"{events:,} single events, {CONNECTIONS} connections", lines, events, "events", notes)


def _latency(server: BenchPostgres, *, seconds: int) -> Comparison:
    """At 1,000 events a second, from the request to its answer. The line's time is the median."""
    stage = _prepare(server)
    server.settle()
    with _serving(stage):
        _load(stage, events=500, per_second=500)  # connections and plans are warm, as those of a running daemon
        report = _load(stage, events=1000 * seconds, per_second=1000)
    hundredths = statistics.quantiles(report["latencies"], n=100)
    met = "met" if hundredths[98] < AIM_P99_S else "missed"
    notes = (f"p50 {hundredths[49] * 1000:.1f} ms, p99 {hundredths[98] * 1000:.1f} ms; aim: p99 < 50 ms: {met}",)
    return Comparison("Latency at 1,000 events/s, median", (Line(OURS, (Sample(hundredths[49], 0.0),)),), notes=notes)


def _prepare(server: BenchPostgres) -> Stage:
    server.create_database("intake")
    database = Database(server.url("intake"))
    migrate_database(database)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = load_settings(
        database_url=server.url("intake"),
        audit_hash_key=BENCH_KEY,
        intake_signing_key=BENCH_KEY,
        intake_port=port,
        intake_key_events_per_s=1e9,
        intake_max_connections_per_address=2 * CONNECTIONS,
    )
    TenantSchemaManager(database, settings).activate([CUSTOMER], actor="bench")
    with database.connect(Role.WRITER) as connection:
        made = create_key(
            connection,
            AuditLogger.from_settings(settings),
            settings,
            CUSTOMER,
            "A",
            name="bench",
            kind=KeyKind.SERVER,
            actor="bench",
        )
    return Stage(settings, made.key, port)


@contextmanager
def _serving(stage: Stage) -> Iterator["subprocess.Popen[bytes]"]:
    """The daemon as operators run it."""
    environment = {**os.environ, **stage.settings.environment(), "LOG_LEVEL": "warning"}
    program = [sys.executable, "-c", "from clientmgr.cli import main; main()", "run", "intake"]
    process = subprocess.Popen(program, env=environment, cwd=REPOSITORY)
    try:
        _wait_until_well(stage.port)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _wait_until_well(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5):  # our own
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _load(stage: Stage, *, events: int, per_second: int = 0) -> dict[str, Any]:
    return _worker(stage, "load", events=events, per_second=per_second)


def _worker(stage: Stage, kind: str, *, events: int, per_second: int = 0) -> dict[str, Any]:
    task = {
        "kind": kind,
        "url": stage.settings.database_url,
        "port": stage.port,
        "key": stage.key,
        "events": events,
        "connections": CONNECTIONS,
        "per_second": per_second,
    }
    with ready_workers(kind, "bench.intake.worker", [task]) as workers:
        workers.start()
        return workers.reports()[0]


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _logged(stage: Stage) -> int:
    with psycopg.connect(stage.settings.database_url) as connection:
        ((count,),) = connection.execute("SELECT count(*) FROM clientmgr.outbox_message_t").fetchall()
        return int(count)
