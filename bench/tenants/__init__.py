"""Tenant schemas: activation, a one-column migration and a no-op; beside psql (the raw limit) and django-tenants.

Checked: every tenant of every variant has the same tables, columns, indexes and constraints after each step.
"""

import functools
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psycopg

from bench.harness.measure import Sample, ensure_same_work, measure, take_turns
from bench.harness.options import Options, peers_python
from bench.harness.report import Comparison, Line, speed_ratio
from bench.harness.servers import BenchPostgres, bench_postgres
from bench.tenants.variants import DjangoTenants, Ours, Psql, TenantsVariant, register_directly
from clientmgr.base.settings import Settings
from clientmgr.tenants.schema_manager import CHUNK

AIM_OF_RAW_LIMIT = 1.3
AIM_NO_OP_S = 0.1
NO_OP_REPEATS = 15

Samples = dict[str, dict[str, list[Sample]]]


def run(options: Options) -> list[Comparison]:
    return compare(
        options,
        tenants=60 if options.quick else 1000,
        registered=(100, 1000) if options.quick else (100, 1000, 10_000),
    )


def compare(options: Options, *, tenants: int, registered: tuple[int, ...]) -> list[Comparison]:
    """The whole benchmark with any number of tenants."""
    with (
        bench_postgres(options) as server,
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder,
    ):
        variants = list(_variants(server, Path(folder), tenants))
        samples = _take_turns(server, variants, options.rounds)
        return [
            *_step_comparisons(samples, tenants, [variant.name for variant in variants]),
            _no_op_by_size(server, Path(folder), registered),
        ]


def _variants(server: BenchPostgres, folder: Path, tenants: int) -> Iterator[TenantsVariant]:
    connections = Settings.model_fields["tenant_connections"].default
    common = (server, folder, tenants, connections)
    yield Ours("ours", *common)
    yield Psql("psql, a transaction a tenant", *common, chunk=1)
    yield Psql(f"psql, {CHUNK} tenants a transaction", *common, chunk=CHUNK)
    if (python := peers_python()) is not None:
        for executor in ("standard", "multiprocessing"):
            yield DjangoTenants(f"django-tenants, {executor}", *common, python=python, executor=executor)


def _take_turns(server: BenchPostgres, variants: list[TenantsVariant], rounds: int) -> Samples:
    samples: Samples = {
        step: {variant.name: [] for variant in variants} for step in ("activate", "add_column", "no_op")
    }
    structures: dict[str, dict[str, Mapping[str, int]]] = {"activate": {}, "add_column": {}}
    # A turn of django-tenants takes minutes and its distance is many times the noise: it takes part in one round.
    quick = [variant for variant in variants if not isinstance(variant, DjangoTenants)]
    turns = [*take_turns(variants, 1), *take_turns(quick, rounds - 1)]
    for number, variant in enumerate(turns, start=1):
        print(f"tenants: turn {number} of {len(turns)}: {variant.name}", file=sys.stderr)
        variant.prepare()
        for step, of_variants in samples.items():
            server.settle()
            of_variants[variant.name].append(getattr(variant, step)())
            if step in structures:
                structures[step][variant.name] = _structures(variant)
                ensure_same_work(f"{step}: how many schemas look how", structures[step])
        server.drop_database(variant.database)
    return samples


def _structures(variant: TenantsVariant) -> Mapping[str, int]:
    query = Path(__file__).with_name("structure.sql").read_bytes()
    with psycopg.connect(variant.url) as connection:
        structures = {str(structure): int(count) for structure, count in connection.execute(query)}
    ensure_same_work("tenants of one structure", {"wanted": [variant.tenants], variant.name: [*structures.values()]})
    return structures


def _step_comparisons(samples: Samples, tenants: int, names: list[str]) -> Iterator[Comparison]:
    titles = {
        "activate": f"Activation of {tenants} tenants",
        "add_column": f"A one-column migration of {tenants} tenants",
        "no_op": f"A migration of {tenants} tenants with nothing to do",
    }
    for step, title in titles.items():
        lines = [Line(name, tuple(samples[step][name])) for name in names]
        raw = [line for line in lines if line.variant.startswith("psql")]
        notes = [] if len(names) > 1 + len(raw) else ["django-tenants: not installed (`make bench` does that)"]
        if step == "no_op":
            lines.remove(raw[1])  # asks the very same single query
            notes.append("psql asks the one query that we ask")
            yield Comparison(title, tuple(lines), notes=tuple(notes))
            continue
        for limit in raw:
            times = 1 / speed_ratio(lines[0], limit)
            met = "met" if times <= AIM_OF_RAW_LIMIT else "missed"
            notes.append(
                f"aim: at most {AIM_OF_RAW_LIMIT}× the time of the raw limit; of {limit.variant}: {times:.2f}×, {met}"
            )
        yield Comparison(title, tuple(lines), amount=tenants, unit="tenants", notes=tuple(notes))


def _no_op_by_size(server: BenchPostgres, folder: Path, registered: tuple[int, ...]) -> Comparison:
    samples: dict[str, list[Sample]] = {}
    asked: list[tuple[str, Callable[[], object]]] = []
    for size in registered:
        ours = Ours(f"no-op {size}", server, folder, size, 1)
        psql = Psql(ours.name, server, folder, size, 1, chunk=1)  # the same name is the same database
        ours.prepare()
        manager = ours.manager(ours.first_file_only)
        register_directly(ours.url, size, digest=manager.head_digest)
        asked += [
            (f"ours, {size} registered", functools.partial(manager.migrate, actor="bench")),
            (f"psql, {size} registered", functools.partial(psql.ask_who_is_behind, manager.head_digest)),
        ]
    for name, ask in take_turns(asked, NO_OP_REPEATS):
        samples.setdefault(name, []).append(measure(ask, server))
    lines = tuple(Line(name, tuple(samples[name])) for name, _ in asked)
    slowest = max(line.wall_s for line in lines if line.variant.startswith("ours"))
    return Comparison(
        "A migration with nothing to do, by the number of registered tenants",
        lines,
        notes=(
            "registry rows made directly by SQL, without schemas: the one query looks at nothing else",
            f"aim: under {AIM_NO_OP_S * 1000:.0f} ms; it is {slowest * 1000:.0f} ms at most: "
            + ("met" if slowest < AIM_NO_OP_S else "missed"),
        ),
    )
