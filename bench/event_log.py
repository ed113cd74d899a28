"""Dagster's event log with 10,000 tenants over a day: bytes, and the time to write them.

A simulated day on a real Dagster instance (our dagster.yaml, PostgreSQL storage): an hourly job over all tenants and
three nightly ones, in chunks, with the assets, checks, summaries and numbers that ours have. Only the work is left out.

| variant | what it does |
|---|---|
| ours | `log_partitions`: in schedules only who changed, in batches; a run is planned as a whole |
| an event for each tenant | every run materialises all its tenants, planned one by one: Dagster's default; in batches |

Assumed: 2% of the tenants delete contacts in an hour; in a night 20% have orphans, and all have other numbers of
devices. Chunks are alike, so fewer tenants are scaled up to 10,000, and of the second variant two hours to a day.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg
import psycopg

from bench.harness.dagster_instance import QUIET, dagster_instance
from bench.harness.measure import Sample, measure
from bench.harness.options import Options
from bench.harness.report import Comparison, Line
from bench.harness.servers import BenchPostgres, bench_postgres
from clientmgr.base.customer_ids import CustomerId
from clientmgr_dagster import materialisations
from clientmgr_dagster.chunks import requests_for_all
from clientmgr_dagster.metadata import log_partitions, log_summary
from clientmgr_dagster.policies import PER_TENANT

ALL_TENANTS, HOURS = 10_000, 24
AIM_MB = 100
EVENTS_BEFORE_A_RUN = 6
"""Queued, dequeued, starting, and what the launcher tells: an execution in this process has none of them."""
MB = 1_000_000

OwnNumbers = Callable[[CustomerId, int], Mapping[str, int | str]]


@dataclass(frozen=True)
class Asset:
    """What an asset of ours says of a tenant in its n-th run."""

    name: str
    numbers: OwnNumbers
    work: tuple[str, ...] = ()


def _few(customer: CustomerId, turn: int, share: float) -> int:
    """5 for a share of the tenants, others in each run; else 0."""
    return 5 if (customer * 7919 + turn * 104_729) % 1000 < share * 1000 else 0


HOURLY = {
    "contact_deletion_job": (
        Asset("deleted_contacts", lambda one, turn: {"waiting": _few(one, turn, 0.02)}, ("waiting",)),
        Asset("contact_deletion_messages", lambda one, turn: {"messages": _few(one, turn, 0.02)}, ("messages",)),
    )
}
NIGHTLY = {
    "orphan_deletion_job": (
        Asset("orphan_candidates", lambda one, turn: {"dagster/row_count": _few(one, turn, 0.2)}),
        Asset(
            "orphan_deletions",
            lambda one, turn: {
                "outcome": "deleted",
                "candidates": _few(one, turn, 0.2),
                "deleted": _few(one, turn, 0.2),
                "spared": 0,
            },
            ("candidates", "deleted", "spared"),
        ),
    ),
    "contact_deletion_reconciliation_job": (
        Asset(
            "contact_deletion_reconciliation",
            lambda one, turn: {"dagster/row_count": _few(one, turn, 0.02), "missed": 0, "messages": 0},
            ("messages",),
        ),
    ),
    "dashboard_job": (
        Asset(
            "dashboard_tenant_metrics",
            lambda one, turn: {"devices": one + turn, "contacts": one, "orphans": 0, "sync": "in sync"},
        ),
        Asset("dashboard_tenant_metrics_history", lambda one, turn: {"devices": one + turn}),
    ),
}


@dataclass(frozen=True)
class Variant:
    """How a run is planned and told."""

    name: str
    leaves_out: bool
    hours: int


OURS = Variant("ours", leaves_out=True, hours=HOURS)
EACH = Variant("an event for each tenant", leaves_out=False, hours=2)


def run(options: Options) -> Iterator[Comparison]:
    tenants = options.tenants or (1_000 if options.quick else ALL_TENANTS)
    with bench_postgres(options) as server:
        yield compare(server, tenants=tenants, hours=2 if options.quick else HOURS)


def compare(server: BenchPostgres, *, tenants: int, hours: int) -> Comparison:
    lines, notes = [], []
    for variant in (OURS, EACH):
        name = f"day_{int(variant.leaves_out)}"
        server.create_database(name)
        with dagster_instance(server, name, plans_whole_runs=variant.leaves_out) as instance:
            keys = [str(number) for number in range(1, tenants + 1)]
            instance.add_dynamic_partitions("tenants", keys)
            day = _Day(instance, server, name, keys, variant)
            line, note = day.measured(min(hours, variant.hours), ALL_TENANTS / tenants)
        server.drop_database(name)
        lines.append(line)
        notes.append(note)
    return Comparison(
        f"Event log of a day: {ALL_TENANTS:,} tenants, an hourly job and three nightly ones (run with {tenants:,})",
        tuple(lines),
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class _Written:
    log_bytes: int
    all_bytes: int
    events: int
    materialisations: int

    def __sub__(self, other: "_Written") -> "_Written":
        return _Written(*(a - b for a, b in zip(_fields(self), _fields(other), strict=True)))


def _fields(one: _Written) -> tuple[int, ...]:
    return one.log_bytes, one.all_bytes, one.events, one.materialisations


class _Day:
    def __init__(
        self, instance: dg.DagsterInstance, server: BenchPostgres, database: str, keys: Sequence[str], variant: Variant
    ) -> None:
        self._instance, self._server, self._database = instance, server, database
        self._keys, self._variant = keys, variant
        self._jobs = {name: _job(name, assets) for name, assets in (HOURLY | NIGHTLY).items()}

    def measured(self, hours: int, times: float) -> tuple[Line, str]:
        """The first runs materialise everybody, and are not of the day."""
        self._run(HOURLY, 0)
        self._run(NIGHTLY, 0)
        start = self._written()
        hourly = measure(lambda: self._run(HOURLY, *range(1, hours + 1)), self._server)
        noon = self._written()
        nightly = measure(lambda: self._run(NIGHTLY, 1), self._server)
        by_hour, by_night = noon - start, self._written() - noon
        part = HOURS / hours

        def whole(name: str) -> float:
            return float(times * (part * getattr(by_hour, name) + getattr(by_night, name)))

        megabytes = whole("log_bytes") / MB
        note = (
            f"{self._variant.name}: {megabytes:,.0f} MB of event log a day with its indexes, "
            f"{whole('all_bytes') / MB:,.0f} MB with runs, tags and checks; {whole('events'):,.0f} events, of them "
            f"{whole('materialisations'):,.0f} materialisations"
        )
        if self._variant is OURS:
            note += f"; aim: at most {AIM_MB} MB: {'met' if megabytes <= AIM_MB else 'missed'}"
        sample = Sample(
            times * (part * hourly.wall_s + nightly.wall_s), times * (part * hourly.client_cpu_s + nightly.client_cpu_s)
        )
        return Line(self._variant.name, (sample,)), note

    def _run(self, jobs: Mapping[str, object], *turns: int) -> None:
        for turn, name in itertools.product(turns, jobs):
            for request in requests_for_all(self._keys, name=name, moment=str(turn)):
                tags = {**request.tags, "turn": str(turn)}
                if self._variant.leaves_out:
                    tags[materialisations.SCHEDULE_TAG] = name
                result = self._jobs[name].execute_in_process(run_config=QUIET, instance=self._instance, tags=tags)
                run = self._instance.get_run_by_id(result.run_id)
                for _ in range(EVENTS_BEFORE_A_RUN):
                    self._instance.report_engine_event("as many words as Dagster's launcher needs for it", run)

    def _written(self) -> _Written:
        with psycopg.connect(self._server.url(self._database), autocommit=True) as connection:
            rows = connection.execute(
                """SELECT pg_total_relation_size('event_logs'),
                    (SELECT sum(pg_total_relation_size(oid)) FROM pg_class
                        WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace),
                    count(*), count(*) FILTER (WHERE dagster_event_type = 'ASSET_MATERIALIZATION')
                FROM event_logs"""
            ).fetchall()
        return _Written(*(int(value) for value in rows[0]))


def _job(name: str, assets: Sequence[Asset]) -> dg.JobDefinition:
    """One step with all the assets of the job and a check, as ours are."""
    first = assets[0].name

    @dg.multi_asset(
        name=name.removesuffix("_job"),
        specs=[dg.AssetSpec(one.name, skippable=True) for one in assets],
        check_specs=[dg.AssetCheckSpec("as_it_should_be", asset=first)],
        can_subset=True,
        **PER_TENANT,
    )
    def step(context: dg.AssetExecutionContext) -> Iterator[dg.AssetCheckResult]:
        customers = [CustomerId(int(key)) for key in context.partition_keys]
        turn = int(context.run.tags["turn"])
        for one in assets:
            numbers = {customer: one.numbers(customer, turn) for customer in customers}
            log_partitions(context, one.name, numbers.items(), work=one.work)
            counts = {customer: int(next(iter(own.values()))) for customer, own in numbers.items() if not one.work}
            log_summary(context, one.name, counts, unit="contacts", tenants=len(counts))
        yield dg.AssetCheckResult(passed=True, asset_key=first, check_name="as_it_should_be", metadata={"missed": 0})

    job = dg.define_asset_job(name, dg.AssetSelection.assets(*(one.name for one in assets)))
    return dg.Definitions(assets=[step], jobs=[job], executor=dg.in_process_executor).resolve_job_def(name)
