"""The device mapper end to end, beside the limit (its bulk read and nothing else), a contact at a time, and assembly.

Messages and devices are there first; timed is from the start of consuming to the last commit, start-up of Python left
out. Everything is on the PostgreSQL log; contents in 5 languages, devices of three providers.

| variant | what it does |
|---|---|
| ours, the daemon | `clientmgr run device-mapper --type batch --burst` as it is, PostgreSQL alone, no Redis |
| a contact at a time | the same daemon, with a query for each contact |
| bulk reads | the devices of all contacts as the daemon reads them, on as many connections, and nothing else |
| limit: bulk reads, rows dropped | the same query, and no device made of its rows |
| limit: reads and appends | the same reads, and the same messages, made beforehand, appended to the topics |
| assembly alone | the same messages decoded, filtered, assembled and encoded, with all devices in memory |

Checked: what was sent, by topic, as a count and a digest, is the same for the daemon and a contact at a time; and the
reads and the assembly were about as many devices.
"""

import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

import psycopg

from bench.device_mapper.tasks import Report, Task
from bench.device_mapper.workload import Scenario, digest, forget_progress, make_database, unread
from bench.harness.measure import Sample, ensure_same_work, take_turns
from bench.harness.options import Options
from bench.harness.report import Comparison, Line, speed_ratio
from bench.harness.servers import BenchPostgres, bench_postgres
from bench.harness.workers import ready_workers
from clientmgr.base.customer_ids import quoted_schema
from clientmgr.sending.fetch import Strategy
from clientmgr.tenants.flippers import Flipper

DATABASE = "device_mapper"
WORKER = "bench.device_mapper.worker"
AIM_OF_LIMIT = 0.4
AIM_OF_ALL_IO = 0.75
AIM_TWO_PROCESSES = 1.8
AIM_OF_BOTO3 = 5.0
AIM_P50_MS, AIM_P99_MS = 20.0, 50.0

DAEMON, AT_A_TIME, READS, LIMIT, ALL_IO, ASSEMBLY = (
    ("ours, the daemon", "daemon"),
    ("a contact at a time", "contact-at-a-time"),
    ("bulk reads", "repository"),
    ("limit: bulk reads, rows dropped", "bulk-fetch"),
    ("limit: reads and appends", "reads-and-appends"),
    ("assembly alone", "assembly"),
)
QUERIES = (("limit: the same queries", "dynamodb-queries"), ("the same queries by boto3", "boto3-queries"))
PUBLISHING = frozenset({"daemon", "contact-at-a-time", "reads-and-appends"})


def run(options: Options) -> Iterator[Comparison]:
    recipients = 1_000 if options.quick else int(os.environ.get("DEVICE_MAPPER_BENCH_RECIPIENTS", "80000"))
    in_batch = 2_000 if options.quick else int(os.environ.get("DEVICE_MAPPER_BENCH_BATCH", "1000000"))
    rounds = max(options.rounds // 2, 1)
    with bench_postgres(options) as server:
        yield from mapping(server, recipients, rounds)
        yield _two_processes(server, recipients * 2, rounds)
        yield from _strategies(server, recipients // 20)
        yield _latency(server, in_batch, seconds=3.0 if options.quick else 20.0)


def mapping(
    server: BenchPostgres, recipients: int, rounds: int, numbers_of_devices: Sequence[int] = (1, 2, 10)
) -> Iterator[Comparison]:
    for devices in numbers_of_devices:
        for filtered in (False, True):
            scenario = Scenario(recipients if devices < 10 else recipients // 4, devices, filtered)
            url = make_database(server, DATABASE, scenario)
            # Once in full; the slow one takes its time.
            variants = [DAEMON, ASSEMBLY] if filtered else [DAEMON, AT_A_TIME, READS, LIMIT, ALL_IO, ASSEMBLY]
            lines = _take_turns(server, url, scenario, variants, rounds)
            notes = () if filtered else (*(_share_of(lines, of) for of in (READS, LIMIT)), _share_of_all_io(lines))
            yield Comparison(scenario.title, lines, scenario.recipients, "recipients", notes)
            server.drop_database(DATABASE)


def _two_processes(server: BenchPostgres, recipients: int, rounds: int) -> Comparison:
    scenario = Scenario(recipients, tenants=8)
    url = make_database(server, DATABASE, scenario)
    samples: dict[str, list[Sample]] = {"two processes": [], "one process": []}
    sent: dict[str, object] = {}
    for name in take_turns(list(samples), rounds):
        sample, _ = _turn(server, url, scenario, ("", "daemon"), workers=2 if name == "two processes" else 1)
        _announce(f"{name}: {recipients / sample.wall_s:,.0f} recipients/s")
        samples[name].append(sample)
        sent[name] = digest(url)
        ensure_same_work("two processes", sent)
    lines = tuple(Line(name, tuple(taken)) for name, taken in samples.items())
    ratio = speed_ratio(lines[0], lines[1])
    met = "met" if ratio >= AIM_TWO_PROCESSES else "missed"
    cores = f"{os.cpu_count()} cores for them and the server"
    note = f"aim: nearly twice as fast ({AIM_TWO_PROCESSES}×); {ratio:.2f}×: {met}. {cores}"
    server.drop_database(DATABASE)
    return Comparison(f"{recipients:,} recipients, 1 device each: processes", lines, recipients, "recipients", (note,))


def _strategies(server: BenchPostgres, recipients: int) -> Iterator[Comparison]:
    """Each strategy beside what it reads. Half of the contacts of the middle one have devices in PostgreSQL."""
    scenario = Scenario(recipients, tenants=4)
    with ready_workers("DynamoDB's stand-in", "bench.device_mapper.stub_dynamodb", [{"devices": 1}]) as stub:
        stub.start()
        (started,) = stub.reports()
        for strategy in Strategy:
            url = make_database(server, DATABASE, scenario)
            _set_strategy(url, strategy, scenario)
            task = Task(url, "daemon", strategy, started["url"])
            sample, _ = _turn(server, url, scenario, ("", "daemon"), task=task)
            _announce(f"strategy {strategy}: {recipients / sample.wall_s:,.0f} recipients/s")
            lines = [Line("ours, the daemon", (sample,))]
            sent = sum(count for _, count, _ in digest(url))
            ensure_same_work(str(strategy), {"asked for": sum(scenario.contacts_of().values()), "daemon": sent})
            notes = ["DynamoDB is a stand-in that answers from memory: what is measured is our side of it"]
            if strategy is Strategy.DYNAMODB:
                for name, kind in QUERIES:
                    taken, report = _turn(server, url, scenario, ("", kind), task=task)
                    ensure_same_work(str(strategy), {"daemon": sent, kind: report.amount})
                    lines.append(Line(name, (taken,)))
                notes.append(_beside_boto3(*lines[-2:]))
            shown = () if strategy is Strategy.POSTGRES else tuple(notes)
            yield Comparison(f"Strategy {strategy}", tuple(lines), recipients, "recipients", shown)
            server.drop_database(DATABASE)


def _beside_boto3(ours: Line, boto3: Line) -> str:
    quicker, cheaper = speed_ratio(ours, boto3), boto3.samples[0].client_cpu_s / ours.samples[0].client_cpu_s
    met = "met" if quicker >= AIM_OF_BOTO3 else "missed"
    return f"aim: {AIM_OF_BOTO3:.0f}× of boto3's rate in one process; {quicker:.1f}×: {met}. CPU: 1/{cheaper:.1f}"


def _latency(server: BenchPostgres, in_batch: int, *, seconds: float) -> Comparison:
    """Single messages, while nothing else happens and while a batch is mapped: all on this machine, server included."""
    contacts = min(in_batch, 100_000)
    scenario = Scenario(contacts, repeated=max(in_batch // contacts, 1))
    _announce(f"latency: publishing a batch for {in_batch:,} recipients")
    url = make_database(server, DATABASE, scenario)
    server.settle()
    idle = _latencies(url, scenario, ["tx-mapper"], seconds)
    before = unread(url)
    busy = _latencies(url, scenario, ["tx-mapper", "daemon"], seconds)
    left = unread(url)
    server.drop_database(DATABASE)
    lines = [
        Line(f"{when}: {name}", (Sample(value / 1000, 0.0),))
        for when, taken in (("while a batch is mapped", busy), ("idle", idle))
        for name, value in (("p50", statistics.median(taken)), ("p99", _percentile(taken, 99)))
    ]
    met = "met" if lines[0].wall_s * 1000 < AIM_P50_MS and lines[1].wall_s * 1000 < AIM_P99_MS else "missed"
    mapped = (before - left) * scenario.a_message
    notes = [
        f"aim: p50 < {AIM_P50_MS:.0f} ms and p99 < {AIM_P99_MS:.0f} ms while a batch is mapped: {met}",
        f"{len(busy)} messages; meanwhile about {mapped:,} of the batch's {in_batch:,} recipients were mapped",
    ]
    if not left:
        notes.append("the batch ended before the last of them: take a larger one (DEVICE_MAPPER_BENCH_BATCH)")
    return Comparison(
        "Latency of a transactional message, from publish to its sender", tuple(lines), notes=tuple(notes)
    )


def _latencies(url: str, scenario: Scenario, mappers: Sequence[str], seconds: float) -> list[float]:
    tasks = [asdict(Task(url, kind)) for kind in mappers]
    client = asdict(Task(url, "latency", tenants=scenario.tenants, seconds=seconds))
    with ready_workers("mappers", WORKER, tasks) as running:
        running.start()
        with ready_workers("client", WORKER, [client]) as clients:
            _announce(f"latency beside {' and '.join(mappers)}")
            clients.start()
            (report,) = (Report(**one) for one in clients.reports())
    latencies = report.latencies_ms
    _announce(f"p50 {statistics.median(latencies):.1f} ms, p99 {_percentile(latencies, 99):.1f} ms")
    return latencies


def _percentile(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) * percent // 100, len(values) - 1)]


def _take_turns(
    server: BenchPostgres, url: str, scenario: Scenario, variants: list[tuple[str, str]], rounds: int
) -> tuple[Line, ...]:
    samples: dict[str, list[Sample]] = {name: [] for name, _ in variants}
    sent: dict[str, object] = {}
    amounts: dict[str, object] = {"asked for": sum(scenario.contacts_of().values()) * scenario.devices}
    for variant in take_turns(variants, rounds):
        name, kind = variant
        sample, report = _turn(server, url, scenario, variant)
        _announce(f"{scenario.title}: {name}: {scenario.recipients / sample.wall_s:,.0f} recipients/s")
        samples[name].append(sample)
        if kind in PUBLISHING:
            sent[name] = digest(url)
            ensure_same_work(scenario.title, sent)
            amounts[name] = sum(count for _, count, _ in digest(url))
        else:
            amounts[name] = report.amount
        ensure_same_work(f"devices of {scenario.title}", amounts)
    return tuple(Line(name, tuple(taken)) for name, taken in samples.items())


def _turn(
    server: BenchPostgres,
    url: str,
    scenario: Scenario,
    variant: tuple[str, str],
    *,
    workers: int = 1,
    task: Task | None = None,
) -> tuple[Sample, Report]:
    """One variant on a database in which nothing is mapped yet."""
    forget_progress(url)
    told = replace(
        task or Task(url, ""),
        kind=variant[1],
        recipients=scenario.recipients,
        devices=scenario.devices,
        filtered=scenario.filtered,
        tenants=scenario.tenants,
        workers=workers,
    )
    tasks = [asdict(replace(told, worker=worker)) for worker in range(workers)]
    with ready_workers(variant[1], WORKER, tasks) as running:
        server.settle()
        server_before = server.cpu_seconds()
        running.start()
        reports = [Report(**report) for report in running.reports()]
        server_after = server.cpu_seconds()
    server_cpu = None if server_before is None or server_after is None else server_after - server_before
    wall_s = max(report.wall_s for report in reports)
    total = Report(amount=sum(report.amount for report in reports))
    return Sample(wall_s, sum(report.cpu_s for report in reports), server_cpu), total


def _set_strategy(url: str, strategy: Strategy, scenario: Scenario) -> None:
    if strategy is not Strategy.POSTGRES_THEN_DYNAMODB:
        return
    with psycopg.connect(url) as connection:
        connection.execute(
            "INSERT INTO clientmgr.flippers (name, enabled, updated_by) VALUES (%s, true, 'bench')",
            (str(Flipper.USE_POSTGRES_DEVICE_MAPPER),),
        )
        for tenant in scenario.contacts_of():
            connection.execute(f"DELETE FROM {quoted_schema(tenant)}.devices WHERE contact_id % 2 = 0".encode())


def _share_of_all_io(lines: Sequence[Line]) -> str:
    """How far a mapper could come at all, since what it makes has to be written as well."""
    limit, possible = _line(lines, ALL_IO), speed_ratio(_line(lines, ALL_IO), _line(lines, LIMIT))
    share = speed_ratio(lines[0], limit)
    met = "met" if share >= AIM_OF_ALL_IO else "missed"
    aim = f"aim: {AIM_OF_ALL_IO:.0%} of reads and appends; {share:.0%}: {met}"
    return f"{aim}. These alone are {possible:.0%} of {LIMIT[0]}"


def _line(lines: Sequence[Line], of: tuple[str, str]) -> Line:
    return next(line for line in lines if line.variant == of[0])


def _share_of(lines: Sequence[Line], of: tuple[str, str]) -> str:
    share = speed_ratio(lines[0], _line(lines, of))
    return f"aim: {AIM_OF_LIMIT:.0%} of {of[0]}; {share:.0%}: {'met' if share >= AIM_OF_LIMIT else 'missed'}"


def _announce(what: str) -> None:
    print(f"device_mapper: {what}", file=sys.stderr)
