"""Batch work with Spark: orphan detection and dashboard collection, beside JDBC by default, a job per tenant and SQL.

| variant | what it does |
|---|---|
| ours | the assets' own functions: packs of tenants in a few tasks, work sent to the data, Arrow over COPY |
| Spark, JDBC by default | each tenant's table as Spark's JDBC source reads it (a fetch size set, or memory runs out) |
| | filtered or aggregated by Spark, written by its JDBC writer; needs POSTGRES_JDBC_JAR |
| Spark, a job per tenant | our functions, called for one tenant after the other; up to 200, then scaled up |
| plain SQL | the same statements by psycopg on two connections, no Spark: what the database can do |

All share one Spark session of this process (`local[*]`), warmed up before: no start of a JVM is counted.
Checked: for every tenant the candidates, one by one, and the numbers of the dashboard are the same.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from bench.batch.session import Driver, running_driver
from bench.batch.variants import OURS, Variant, variants_for
from bench.batch.workload import Workload, make_workload
from bench.harness.measure import Sample, ensure_same_work, take_turns
from bench.harness.options import Options
from bench.harness.report import Comparison, Line, speed_ratio
from bench.harness.servers import BenchPostgres, bench_postgres
from clientmgr.base.customer_ids import CustomerId

DEVICES, TENANTS, SKEWED_SHARE = 5_000_000, 200, 0.4
SMALL_TENANTS, SMALL_DEVICES = 1_000, 100
AIM_OVER_JDBC, AIM_MS_A_TENANT, AIM_GROWTH = 2.0, 5.0, 1.3
WORKS = ("orphan detection", "dashboard collection")


def run(options: Options) -> Iterator[Comparison]:
    devices = int(os.environ.get("BENCH_BATCH_DEVICES", DEVICES))
    sizes = (10, 10_000, 30) if options.quick else (TENANTS, devices, SMALL_TENANTS)
    rounds = max(options.rounds // 2, 1)  # a round takes minutes
    with bench_postgres(options) as server, running_driver(options) as driver:
        bench = Bench(server, driver, rounds)
        yield from compare(bench, tenants=sizes[0], devices=sizes[1], small_tenants=sizes[2])


@dataclass(frozen=True)
class Memory:
    """What the driver held at most: its Python process, and what the JVM's collector could not throw away."""

    python_mb: float
    jvm_mb: float


@dataclass(frozen=True)
class Bench:
    """Where the work is done."""

    server: BenchPostgres
    driver: Driver
    rounds: int

    def take_turns(self, work: str, workload: Workload, variants: list[Variant]) -> tuple[tuple[Line, ...], Memory]:
        """All variants on one workload; and the memory that ours took."""
        samples: dict[str, list[Sample]] = {variant.name: [] for variant in variants}
        found: dict[CustomerId, object] = {}
        memory = Memory(0, 0)
        for number, variant in enumerate(take_turns(variants, self.rounds), start=1):
            _announce(f"{work}, {workload.name}: turn {number} of {len(variants) * self.rounds}: {variant.name}")
            part = variant.part_of(workload)
            workload.forget_results()
            self.server.settle()
            self.driver.forget_memory_peak()
            sample = self.driver.measure(partial(variant.run, work, self.driver, part), self.server)
            samples[variant.name].append(_scaled(sample, len(workload.customers) / len(part.customers)))
            if variant is OURS:
                memory = Memory(self.driver.python_mb(), self.driver.jvm_peak_mb())
            results = part.results(work)
            # Ours has the first turn of all.
            found = found or results
            ensure_same_work(work, {"ours": {one: found.get(one) for one in part.customers}, variant.name: results})
        return tuple(Line(name, tuple(taken)) for name, taken in samples.items()), memory

    def ours_alone(self, work: str, workload: Workload) -> tuple[Line, Memory]:
        lines, memory = self.take_turns(work, workload, [OURS])
        return lines[0], memory


def _scaled(sample: Sample, times: float) -> Sample:
    server_cpu_s = None if sample.server_cpu_s is None else sample.server_cpu_s * times
    return Sample(sample.wall_s * times, sample.client_cpu_s * times, server_cpu_s)


def compare(bench: Bench, *, tenants: int, devices: int, small_tenants: int) -> Iterator[Comparison]:
    """Many devices with a skewed tenant, then many small tenants."""
    server, driver = bench.server, bench.driver
    _announce(f"making {tenants} tenants with {devices:,} devices")
    large = make_workload(server, "large", tenants=tenants, devices=devices, skewed_share=SKEWED_SHARE)
    # For how the cost grows: the same with a tenth of the devices.
    tenth = make_workload(server, "tenth", tenants=tenants, devices=devices // 10, skewed_share=SKEWED_SHARE)
    _announce(f"making {small_tenants} small tenants")
    many = make_workload(server, "many", tenants=small_tenants, devices=small_tenants * SMALL_DEVICES, skewed_share=0)
    variants = variants_for(driver)
    for work in WORKS:
        OURS.run(work, driver, many.few())
    for work in WORKS:
        small, memory_before = bench.ours_alone(work, tenth)
        title = f"{work.capitalize()}: {tenants} tenants, {devices:,} devices, one tenant with {SKEWED_SHARE:.0%}"
        lines, memory = bench.take_turns(work, large, variants)
        growth = lines[0].wall_s / small.wall_s / 10
        notes = (
            *_notes(lines),
            f"aim: linear; 10 times the devices take {growth * 10:.1f} times as long as a tenth of them: "
            f"{_met(growth <= AIM_GROWTH)}",
            f"aim: the driver's memory flat; Python {memory_before.python_mb:.0f} → {memory.python_mb:.0f} MB, "
            f"kept by the JVM {memory_before.jvm_mb:.0f} → {memory.jvm_mb:.0f} MB, for a tenth → all of the devices",
        )
        yield Comparison(title, lines, devices, "devices", notes)
    for work in WORKS:
        title = f"{work.capitalize()}: {small_tenants} tenants with {SMALL_DEVICES} devices each"
        lines, _ = bench.take_turns(work, many, variants)
        few, _ = bench.ours_alone(work, many.few())
        each_ms = 1000 * max(lines[0].wall_s - few.wall_s, 0) / max(small_tenants - len(many.few().customers), 1)
        note = f"aim: at most {AIM_MS_A_TENANT:.0f} ms a tenant; {each_ms:.2f} ms: {_met(each_ms <= AIM_MS_A_TENANT)}"
        yield Comparison(title, lines, small_tenants, "tenants", (*_notes(lines), note))
    for workload in (large, tenth, many):
        server.drop_database(workload.name)


def _notes(lines: tuple[Line, ...]) -> tuple[str, ...]:
    by_name = {line.variant: line for line in lines}
    notes = []
    if jdbc := by_name.get("Spark, JDBC by default"):
        times = speed_ratio(lines[0], jdbc)
        notes.append(
            f"aim: at least {AIM_OVER_JDBC:.0f}× JDBC by default: {times:.2f}×, {_met(times >= AIM_OVER_JDBC)}"
        )
    else:
        notes.append("Spark, JDBC by default: absent, POSTGRES_JDBC_JAR names no JDBC driver of PostgreSQL")
    times = 1 / speed_ratio(lines[0], by_name["plain SQL"])
    pays = "pays" if times < 1 else "does not pay here: it is there for more executors, other stores and retries"
    notes.append(f"plain SQL on one server is {times:.1f}× as fast as Spark on it: Spark {pays}")
    return tuple(notes)


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed"


def _announce(what: str) -> None:
    print(f"batch: {what}", file=sys.stderr)
