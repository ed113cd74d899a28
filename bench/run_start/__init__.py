"""How long somebody waits for Dagster: from a click to a green partition, from a message to the tenant's schema.

The whole of Dagster as `up` runs it, on an embedded PostgreSQL: code server, daemon, webserver, the Spark server that
runs share. Nothing else runs. What is clicked for: `tenant_schema`, which needs no Spark, and two that are Spark jobs.

| variant | what it does |
|---|---|
| ours | our code server: each run is a fork of a process that has everything imported |
| Dagster's own code server | `dagster api grpc` on the same socket: each run is a new Python that imports everything |

Both have our dagster.yaml and our sensors, which wait for messages. A variant has one system for all its turns: these
are warm times, of Spark too. Checked: every run succeeds, every customer is active at the end.
The last table is about cold and warm Spark, without Dagster: `spark.py`.
"""

from collections.abc import Iterator, Mapping, Sequence

from bench.harness.measure import Sample
from bench.harness.options import Options
from bench.harness.report import Comparison, Line
from bench.run_start.parts import parts
from bench.run_start.spark import starts
from bench.run_start.system import DagsterSystem, Launched, running_dagster

OURS, DAGSTERS = "ours", "Dagster's own code server"
CLICKED = ("tenant_schema", "orphan_candidates", "dashboard_tenant_metrics")
AIM_CLICK_S, AIM_MESSAGE_S = 8.0, 6.0


def run(options: Options) -> Iterator[Comparison]:
    yield from compare(options, turns=1 if options.quick else 2 * options.rounds + 1)
    yield starts(options)


def compare(options: Options, *, turns: int, variants: Sequence[str] = (OURS, DAGSTERS)) -> Iterator[Comparison]:
    clicks: dict[str, dict[str, list[Launched]]] = {asset: {} for asset in CLICKED}
    messages: dict[str, list[Sample]] = {}
    for variant in variants:
        with running_dagster(options, is_ours=variant == OURS) as system:
            for asset in CLICKED:
                clicks[asset][variant] = _clicks(system, asset, turns)
            # Not in step with the daemon's looks, every 5 s.
            messages[variant] = [system.activate(after_s=(number * 1.7) % 5) for number in range(turns)]
    for asset, by_variant in clicks.items():
        click = _lines({name: [one.sample for one in found] for name, found in by_variant.items()})
        notes = [f"{name}: {parts([one.parts for one in found])}" for name, found in by_variant.items()]
        yield Comparison(f"click to green: {asset} of one tenant", click, notes=(_aim(click, AIM_CLICK_S), *notes))
    message = _lines(messages)
    yield Comparison("publish to schema: an activation by message", message, notes=(_aim(message, AIM_MESSAGE_S),))


def _clicks(system: DagsterSystem, asset: str, turns: int) -> list[Launched]:
    system.click(asset)  # the first one opens connections, and starts Spark
    return [system.click(asset) for _ in range(turns)]


def _lines(samples: Mapping[str, Sequence[Sample]]) -> tuple[Line, ...]:
    return tuple(Line(name, tuple(found)) for name, found in samples.items())


def _aim(lines: Sequence[Line], aim_s: float) -> str:
    met = "met" if lines[0].wall_s <= aim_s else "missed"
    return f"aim on two quiet cores: {aim_s:.0f} s at the median: {met}"
