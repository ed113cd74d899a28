"""The message log: publish, consume, latency; beside pgmq, Procrastinate, pg-boss, graphile-worker and the limit.

Checked: as many messages wait after publishing as were sent, and the handler left exactly one row per message.
"""

import dataclasses
import statistics
import sys
from collections.abc import Iterator

import psycopg

from bench.broker.variants import LIMIT, OURS, Variant, peers
from bench.harness.measure import Sample, ensure_same_work, take_turns
from bench.harness.options import Options
from bench.harness.report import Comparison, Line, speed_ratio
from bench.harness.servers import BenchPostgres, bench_postgres
from bench.peers.broker.workload import Report

OLD_ROWS = 10_000_000


def run(options: Options) -> Iterator[Comparison]:
    messages = 2_000 if options.quick else 20_000
    rounds = min(options.rounds, 3)
    with bench_postgres(options) as server:
        yield _latency(server, seconds=2 if options.quick else 15)
        yield from _publishing(server, messages, rounds)
        yield from _consuming(server, messages, rounds)
        yield from _old_log(server, messages, rounds, old_rows=100_000 if options.quick else OLD_ROWS)


def _publishing(server: BenchPostgres, messages: int, rounds: int) -> Iterator[Comparison]:
    for batch, amount in ((1, messages // 25), (100, messages), (1000, messages)):
        for publishers in (1, 8):
            variants = [OURS, *peers(), LIMIT]
            samples: dict[str, list[Sample]] = {variant.name: [] for variant in variants}
            for variant in _turns(f"publish by {batch}, {publishers} at once", variants, rounds):
                variant.prepare(server, workers=16 if variant is OURS else publishers)
                server.settle()
                own = variant.share_of(amount)
                report = variant.run(server, kind="publish", messages=own, batch=batch, workers=publishers)
                samples[variant.name].append(_sample(report, amount / own))
                ensure_same_work("messages in the queue", {"sent": own, variant.name: variant.count_waiting(server)})
                server.drop_database(variant.database)
            title = (
                f"Publishing {amount} messages, {batch} a transaction, {publishers} publisher{'s' * (publishers > 1)}"
            )
            yield _compared(title, samples, amount, aim=1.0 if batch > 1 else None)


def _consuming(server: BenchPostgres, messages: int, rounds: int) -> Iterator[Comparison]:
    for bulk in (False, True):
        for workers in (1, 2, 8):
            variants = [variant for variant in (OURS, *peers(), LIMIT) if variant.bulk or not bulk]
            samples: dict[str, list[Sample]] = {variant.name: [] for variant in variants}
            what = "in bulk" if bulk else "a row at a time"
            for variant in _turns(f"consume {what}, {workers} at once", variants, rounds):
                variant.prepare(server, workers=workers)
                own = variant.share_of(messages)
                variant.run(server, kind="publish", messages=own, batch=1000, workers=workers)
                server.settle()
                report = variant.run(server, kind="consume", messages=own, workers=workers, bulk=bulk)
                samples[variant.name].append(_sample(report, messages / own))
                ensure_same_work("rows and messages", {"sent": (own, own), variant.name: variant.handled(server)})
                server.drop_database(variant.database)
            title = f"Consuming {messages} messages, handler inserts {what}, {workers} partition{'s' * (workers > 1)}"
            yield _compared(title, samples, messages, aim=2.0 if bulk else 1.0)


def _latency(server: BenchPostgres, *, seconds: int) -> Comparison:
    """From the call of publish to the handler, at 400 messages a second. The line's time is the median."""
    lines, notes = [], []
    for variant in _turns("latency", [OURS, *(peer for peer in peers() if peer.latency)], 1):
        variant.prepare(server, workers=8)
        server.settle()
        report = variant.run(server, kind="latency", messages=400 * seconds, workers=8)
        half, most = (
            statistics.quantiles(report.latencies, n=100)[49],
            statistics.quantiles(report.latencies, n=100)[98],
        )
        lines.append(Line(variant.name, (Sample(half, 0.0),)))
        notes.append(f"{variant.name}: p50 {half * 1000:.1f} ms, p99 {most * 1000:.1f} ms")
        if variant is OURS:
            met = "met" if half < 0.005 and most < 0.020 else "missed"
            notes.append(f"aim: p50 < 5 ms and p99 < 20 ms: {met}")
        server.drop_database(variant.database)
    return Comparison("Latency at 400 messages/s, median", tuple(lines), notes=tuple(notes))


def _old_log(server: BenchPostgres, messages: int, rounds: int, *, old_rows: int) -> list[Comparison]:
    """Publishing and consuming when the log already holds many rows, beside an empty one."""
    young = dataclasses.replace(OURS, name="log holds nothing else")
    old = dataclasses.replace(OURS, name=f"log holds {old_rows:,} rows")
    for variant in (young, old):
        variant.prepare(server, workers=8)
    print(f"broker: old log: filling it with {old_rows:,} rows", file=sys.stderr)
    _fill_log(server.superuser_url(old.database), old_rows)
    published: dict[str, list[Sample]] = {young.name: [], old.name: []}
    consumed: dict[str, list[Sample]] = {young.name: [], old.name: []}
    for variant in _turns("old log", [young, old], rounds):
        server.settle()
        published[variant.name].append(
            _sample(variant.run(server, kind="publish", messages=messages, batch=1000, workers=8))
        )
        server.settle()
        consumed[variant.name].append(
            _sample(variant.run(server, kind="consume", messages=messages, workers=8, bulk=True))
        )
        ensure_same_work("rows and messages", {"sent": (messages, messages), variant.name: variant.handled(server)})
        server.empty_table(variant.database, "handled")
    for variant in (young, old):
        server.drop_database(variant.database)
    return [_kept("Publishing", published, messages), _kept("Consuming", consumed, messages)]


def _kept(what: str, samples: dict[str, list[Sample]], messages: int) -> Comparison:
    lines = tuple(Line(name, tuple(taken)) for name, taken in samples.items())
    kept = 1 / speed_ratio(lines[0], lines[1])
    met = "met" if kept > 0.9 else "missed"
    note = f"aim: falls by less than 10%; {kept:.0%} of the throughput is kept: {met}"
    return Comparison(f"{what} {messages} messages, new log and old", lines, messages, "messages", (note,))


def _fill_log(url: str, rows: int) -> None:
    """Old messages that the group has passed already."""
    with psycopg.connect(url) as connection:
        connection.execute("SET session_replication_role = replica")  # nobody is to be woken for these
        connection.execute(
            """
            INSERT INTO clientmgr.outbox_message_t
                (topic_id, partition_id, c_offset, tx_last_offset, transaction_id, host_id, payload)
            SELECT c.id, clientmgr.partition_of((n % 64)::text, 8), n, n, gen_random_uuid(), (n % 64)::text,
                convert_to(repeat('x', 160), 'UTF8')
            FROM clientmgr.log_counter AS c, generate_series(1, %(rows)s::bigint) AS n
            WHERE c.topic = 'bench-queue'
            """.replace("% 64", "%% 64"),
            {"rows": rows},
        )
        connection.execute("UPDATE clientmgr.log_counter SET next_offset = %s WHERE topic = 'bench-queue'", (rows + 1,))
        connection.execute("UPDATE clientmgr.consumer_offsets SET next_offset = %s", (rows + 1,))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE clientmgr.outbox_message_t")


def _compared(title: str, samples: dict[str, list[Sample]], amount: int, *, aim: float | None) -> Comparison:
    lines = tuple(Line(name, tuple(taken)) for name, taken in samples.items())
    rivals = [line for line in lines if line.variant not in (OURS.name, LIMIT.name)]
    notes = [variant.about_share for variant in peers() if variant.about_share and variant.name in samples]
    if not rivals:
        notes.append("peers: not installed (`make bench` does that)")
    elif aim is not None:
        best = min(rivals, key=lambda line: line.wall_s)
        times = speed_ratio(lines[0], best)
        met = "met" if times >= aim else "missed"
        notes.append(f"aim: at least {aim:.0f}× the best of them ({best.variant}): {times:.2f}×, {met}")
    return Comparison(title, lines, amount, "messages", tuple(notes))


def _sample(report: Report, times: float = 1.0) -> Sample:
    return Sample(report.wall_s * times, report.cpu_s * times)


def _turns(what: str, variants: list[Variant], rounds: int) -> Iterator[Variant]:
    for number, variant in enumerate(take_turns(variants, rounds), start=1):
        print(f"broker: {what}: turn {number} of {len(variants) * rounds}: {variant.name}", file=sys.stderr)
        yield variant
