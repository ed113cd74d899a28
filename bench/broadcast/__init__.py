"""Live broadcast: processor time per frame and lag, beside Node's ws, Python's websockets and plain sockets."""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import redis

from bench.broadcast.servers import LIMIT, OURS, OURS_WITH_TICK, WEBSOCKETS, Place, Server, node_server
from bench.broadcast.task import Report, Task
from bench.harness.measure import Sample, ensure_same_work, take_turns
from bench.harness.options import REPOSITORY, Options
from bench.harness.report import Comparison, Line
from bench.harness.servers import bench_postgres
from clientmgr.base.database import Database, Role
from clientmgr.base.sqlfiles import named_queries
from clientmgr.local.embedded.redis import EmbeddedRedis
from clientmgr.operations.migrations import migrate_database

STREAM = "telemetry:bench"
DEVICES = 100
SLOW_BYTES_PER_SECOND = 10_000


@dataclass(frozen=True)
class Scenario:
    """So many connections over so many events, and so many records a second in all; 0: as many as go."""

    connections: int
    events: int
    rate: int
    records: int

    @property
    def title(self) -> str:
        pace = f"{self.rate} records/s" if self.rate else "as fast as it goes"
        events = "1 event" if self.events == 1 else f"{self.events} events"
        return f"{self.connections:,} connections, {events}, {pace}"

    @property
    def frames(self) -> int:
        """Of all connections together."""
        of_event = [0] * self.events
        for number in range(self.records):
            of_event[number % DEVICES % self.events] += 1
        return sum(of_event[number % self.events] for number in range(self.connections))


FULL = (
    Scenario(20, 1, 100, 1000),
    Scenario(1000, 1, 100, 800),
    Scenario(1000, 100, 100, 800),
    Scenario(5000, 1, 20, 120),
    Scenario(20, 1, 0, 20_000),
)
QUICK = (Scenario(10, 2, 100, 50), Scenario(5, 1, 0, 500))


@dataclass(frozen=True)
class Turn:
    """What one server did in one turn."""

    report: Report
    cpu_s: float
    wall_s: float


def run(options: Options) -> Iterator[Comparison]:
    node = node_server()
    servers = [OURS, OURS_WITH_TICK, *([node] if node else []), WEBSOCKETS, LIMIT]
    absent = () if node else ("Node ws: not installed (tools/setup-bench), left out",)
    with _servers(options) as place:
        scenarios = QUICK if options.quick else FULL
        for scenario in scenarios:
            yield _compare(scenario, servers, place, options.rounds, absent)
        if not options.quick:
            yield _beside_a_stalled_viewer(place, options.rounds)
            yield _slow_viewer([OURS, *([node] if node else [])], place)


def compare(options: Options, scenario: Scenario, servers: Sequence[Server]) -> Comparison:
    """One scenario by itself."""
    with _servers(options) as place:
        return _compare(scenario, servers, place, options.rounds, ())


def _compare(
    scenario: Scenario, servers: Sequence[Server], place: Place, rounds: int, notes: tuple[str, ...]
) -> Comparison:
    samples: dict[str, list[Sample]] = {server.name: [] for server in servers}
    lags: dict[str, list[float]] = {server.name: [] for server in servers}
    for server in take_turns(servers, rounds):
        _announce(f"{scenario.title}: {server.name}")
        turn = _turn(server, scenario, place)
        ensure_same_work(scenario.title, {"expected": scenario.frames, server.name: turn.report.frames})
        # With a pace, everybody takes the same time: what it costs is what tells them apart.
        time_s = turn.cpu_s if scenario.rate else turn.wall_s
        samples[server.name].append(Sample(time_s, turn.report.cpu_s, turn.cpu_s))
        lags[server.name] += turn.report.lags_ms
    meaning = "time: the server's processor time" if scenario.rate else "time: until the last frame has come"
    return Comparison(
        scenario.title,
        tuple(Line(name, tuple(taken)) for name, taken in samples.items()),
        scenario.frames,
        "frames",
        (
            f"{meaning}; client CPU: the viewers'",
            *(_lag(name, sorted(found)) for name, found in lags.items() if found),
            *notes,
        ),
    )


def _beside_a_stalled_viewer(place: Place, rounds: int) -> Comparison:
    """The others' p99, with and without somebody who takes nothing. Here the time is that p99."""
    scenario = Scenario(100, 1, 100, 1000)
    samples: dict[str, list[Sample]] = {"ours": [], "ours, beside 3 stalled viewers": []}
    for name in take_turns(list(samples), rounds):
        _announce(f"stalled viewers: {name}")
        turn = _turn(OURS, scenario, place, stalled=0 if name == "ours" else 3)
        samples[name].append(Sample(_percentile(turn.report.lags_ms, 0.99) / 1000, turn.report.cpu_s, turn.cpu_s))
    lines = tuple(Line(name, tuple(taken)) for name, taken in samples.items())
    return Comparison(f"p99 of the others: {scenario.title}", lines, notes=("time: the lag's p99",))


def _slow_viewer(servers: Sequence[Server], place: Place) -> Comparison:
    """One viewer at 10 kB/s, 500 devices at 1 Hz, 40 s. Here the time is the greatest age of a frame when it came."""
    lines = []
    _enter_events(place)
    for server in servers:
        _announce(f"slow viewer: {server.name}")
        with server.start(place) as running:
            task = Task(running.port, 1, 1, expected=0, seconds=40, bytes_per_second=SLOW_BYTES_PER_SECOND)
            with _viewers(task) as viewers:
                _publish(place, records=40 * 500, rate=500, devices=500)
                report = _report(viewers)
        late = report.lags_ms[-1] if report.lags_ms else float("nan")
        lines.append(Line(server.name, (Sample(late / 1000, report.cpu_s),)))
    notes = ("time: the oldest frame that came within 40 s; aim: under 15 s",)
    return Comparison("A viewer at 10 kB/s, 500 devices at 1 Hz", tuple(lines), notes=notes)


def _turn(server: Server, scenario: Scenario, place: Place, *, stalled: int = 0) -> Turn:
    place = replace(place, events=scenario.events)
    _enter_events(place)
    with server.start(place) as running:
        task = Task(
            running.port,
            scenario.connections,
            scenario.events,
            scenario.frames,
            stalled=stalled,
            lags=bool(scenario.rate),
        )
        with _viewers(task) as viewers:
            before, started = running.cpu_seconds(), time.perf_counter()
            _publish(place, scenario.records, scenario.rate)
            report = _report(viewers)
            return Turn(report, running.cpu_seconds() - before, time.perf_counter() - started)


def _publish(place: Place, records: int, rate: int, *, devices: int = DEVICES) -> None:
    """Paced: each record at its time, by itself, as devices send them. Otherwise in hundreds."""
    client = redis.Redis.from_url(place.redis_url)
    started = time.perf_counter()
    if rate:
        for number in range(records):
            time.sleep(max(0.0, started + number / rate - time.perf_counter()))
            client.xadd(STREAM, _record(number % devices), maxlen=100_000)  # type: ignore[arg-type]
    else:
        for first in range(0, records, 100):
            with client.pipeline(transaction=False) as pipeline:
                for number in range(first, min(first + 100, records)):
                    pipeline.xadd(STREAM, _record(number % devices), maxlen=100_000)  # type: ignore[arg-type]
                pipeline.execute()
    client.close()


def _record(device: int) -> dict[str, str]:
    ts = datetime.now(UTC).isoformat(timespec="milliseconds")
    payload = '{"latitude":53.543612,"longitude":9.988611,"speed":31.5,"course":181.5}'
    return {"ts": ts, "device_id": f"d{device}", "codec": "8E", "payload": payload}


def _enter_events(place: Place) -> None:
    with Database(place.database_url).connect(Role.WRITER) as connection:
        connection.execute("DELETE FROM live.entries")
        for event in range(place.events):
            devices = [f"d{number}" for number in range(500) if number % place.events == event]
            connection.execute(
                named_queries("live/queries/participants.sql")["enter_event"],
                {"event_id": f"E{event}", "device_ids": devices},
            )
    # No snapshot: each connection begins with nothing, as the peers' do.
    with redis.Redis.from_url(place.redis_url) as client:
        client.delete(f"{STREAM}:last-positions")


@contextlib.contextmanager
def _viewers(task: Task) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "bench.broadcast.viewers", json.dumps(asdict(task))]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("the viewers could not connect")
            yield process
        finally:
            process.kill()


def _report(viewers: subprocess.Popen[str]) -> Report:
    assert viewers.stdout is not None
    return Report(**json.loads(viewers.stdout.readline()))


@contextlib.contextmanager
def _servers(options: Options) -> Iterator[Place]:
    with bench_postgres(options) as postgres, tempfile.TemporaryDirectory(dir=options.folder) as folder:
        postgres.create_database("live")
        migrate_database(Database(postgres.url("live")))
        server = EmbeddedRedis(Path(folder) / "redis")
        server.start()
        try:
            yield Place(postgres.url("live"), server.url, STREAM, 1, folder)
        finally:
            server.stop()


def _lag(name: str, lags_ms: list[float]) -> str:
    shown = ", ".join(f"p{share * 100:.0f} {_percentile(lags_ms, share):,.1f} ms" for share in (0.5, 0.95, 0.99))
    return f"lag of {name}: {shown}"


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def _announce(what: str) -> None:
    print(f"broadcast: {what}", file=sys.stderr)
