"""The tables of docs/scaling.md as Markdown: what was measured, the arithmetic, what breaks first. Pure."""

from collections.abc import Sequence

from bench.scaling.limits import limits
from bench.scaling.markdown import KB, duration, rounded, size, table
from bench.scaling.measured import Measured
from bench.scaling.model import STEPS, Assumed, Costs, Need, need
from bench.scaling.on_cluster import cluster_blocks


def blocks(measured: Measured) -> dict[str, str]:
    """By the name of the place in the page."""
    costs, assumed = Costs.of(measured), Assumed()
    needs = [need(step, costs, assumed) for step in STEPS]
    return {
        "scaling-measured": _measured(measured),
        "scaling-backends": _backends(measured),
        "scaling-dagster": _dagster(measured),
        "scaling-device": _device(measured),
        "scaling-lines": _lines(costs),
        "scaling-steps": _steps(needs),
        "scaling-limits": _limits(costs, measured, assumed),
        **cluster_blocks(measured, needs),
    }


def _measured(measured: Measured) -> str:
    sizes = measured.sizes
    rows = [
        ("activation of the new ones", *(f"{one.activated:,} in {one.activate_s:.1f} s" for one in sizes)),
        ("one column for all", *(f"{one.migrate_s:.1f} s" for one in sizes)),
        ("the dashboard's pass", *(f"{one.collect_s:.1f} s" for one in sizes)),
        ("search for orphans", *(f"{one.orphans_s:.1f} s" for one in sizes)),
        ("the dashboard's first page", *(f"{one.page_s * 1000:.0f} ms" for one in sizes)),
        ("rows of `pg_class`", *(f"{one.relations:,}" for one in sizes)),
        ("rows of `pg_attribute`", *(f"{one.attributes:,}" for one in sizes)),
        ("catalogue", *(size(one.catalogue_bytes) for one in sizes)),
        ("database, with 20 devices a tenant", *(size(one.database_bytes) for one in sizes)),
        ("files", *(f"{one.files:,}" for one in sizes)),
        ("a look by autovacuum, CPU", *(f"{one.autovacuum_look_s * 1000:.0f} ms" for one in sizes)),
        ("`pg_dump`", *(f"{one.dump_s:.1f} s" for one in sizes)),
        ("locks of `pg_dump`", *(f"{one.dump_locks:,}" for one in sizes)),
        ("start after a crash", *(f"{one.crash_start_s:.1f} s" for one in sizes)),
        ("shared memory", *(size(one.shared_memory_bytes) for one in sizes)),
    ]
    headings = ["", *(f"{one.tenants:,} tenants" for one in sizes)]
    return f"Measured on {measured.machine}.\n\n{table(headings, rows)}"


def _backends(measured: Measured) -> str:
    rows = [
        (
            one.work,
            f"{one.schemas:,}",
            f"after {one.recycled_after:,}" if one.recycled_after else "never",
            *(size(held) for held in (one.private_bytes, one.pss_bytes, one.caches_bytes)),
            f"{one.first_s / one.schemas * 1000:.2f} ms",
            f"{one.again_s / one.schemas * 1000:.2f} ms" if one.again_s else "",
        )
        for one in measured.backends
    ]
    headings = ["work", "tenants", "renewed", "own memory", "PSS", "of it caches", "first time", "again"]
    return table(headings, rows)


def _dagster(measured: Measured) -> str:
    rows = [
        (
            f"{one.partitions:,}",
            f"{one.added:,} in {one.add_s:.2f} s",
            f"{one.list_s * 1000:.0f} ms",
            f"{one.requests} in {one.request_s * 1000:.0f} ms",
            f"{one.run_tenants} in {one.run_s:.1f} s",
        )
        for one in measured.partitions
    ]
    connections = sum(measured.installation.connections.values())
    partitions = table(["partitions", "added", "listed in", "run requests of a schedule", "a run over"], rows)
    return f"{partitions}\n\n`clientmgr up` at rest keeps {connections} connections to its PostgreSQL."


def _device(measured: Measured) -> str:
    device, writer = measured.device, measured.writer
    sizes = {name: size / device.devices for name, size in device.bytes_by_relation.items()}
    rows = [(f"`{name}`", f"{held:.0f}") for name, held in sizes.items() if held >= 1]
    rows.append(("all", f"{device.bytes_a_device:,.0f}"))
    return (
        f"{table(['relation', 'bytes a device'], rows)}\n\n"
        f"The writer made {writer.events / writer.write_s:,.0f} events a second with {writer.tenants} tenants, "
        f"{writer.events_a_core_second:,.0f} for each second of a core (its own and PostgreSQL's together). The "
        f"dashboard's query took {device.count_s:.2f} s over {device.devices:,} devices in memory."
    )


def _lines(costs: Costs) -> str:
    found = [
        ("activation", costs.activate_s, 1e3, "ms"),
        ("one column", costs.migrate_s, 1e3, "ms"),
        ("both nightly passes", costs.nightly_s, 1e3, "ms"),
        ("database", costs.tenant_bytes, 1 / KB, "kB"),
        ("catalogue", costs.catalogue_bytes, 1 / KB, "kB"),
        ("rows of `pg_class`", costs.relations, 1, ""),
        ("`pg_dump`", costs.dump_s, 1e3, "ms"),
        ("locks of `pg_dump`", costs.dump_locks, 1, ""),
        ("start after a crash", costs.crash_start_s, 1e3, "ms"),
        ("a look by autovacuum", costs.look_s, 1e3, "ms"),
        ("a mapper's backend", costs.mapper_bytes, 1 / KB, "kB"),
        ("a writer's backend", costs.writer_bytes, 1 / KB, "kB"),
        ("listing Dagster's partitions", costs.list_s, 1e3, "ms"),
    ]
    rows = [
        (what, f"{growth.constant * unit:,.0f} {name}".strip(), f"{growth.each * unit:,.3g} {name}".strip())
        for what, growth, unit, name in found
    ]
    return table(["what", "constant", "a tenant"], rows)


def _steps(needs: Sequence[Need]) -> str:
    rows = [
        (f"**{one.step.tenants:,}**" for one in needs),
        (f"{one.step.devices:,}" for one in needs),
        (size(one.storage_bytes) for one in needs),
        (f"{one.events_a_second:,.0f}" for one in needs),
        (f"{one.daemon_cores:,.1f} + {one.server_cores:,.1f}" for one in needs),
        (size(one.backend_bytes) for one in needs),
        (f"{one.connections:,}" for one in needs),
        (f"{one.runs:,}" for one in needs),
        (duration(one.night_s) for one in needs),
        (f"{one.nodes:,}" + (f" ({one.because})" if one.because else "") for one in needs),
        (f"{one.installations:,}" for one in needs),
        ("Pub/Sub" if one.on_pubsub else "PostgreSQL" for one in needs),
    ]
    names = (
        "tenants",
        "devices",
        "storage",
        "events a second at the peak",
        "cores for them: daemons + PostgreSQL",
        "memory of writers' backends",
        "connections",
        "Dagster's runs for a nightly job",
        "both nightly passes",
        "PostgreSQL servers for tenants",
        "installations",
        "messages on",
    )
    (_, *heading), *others = [(name, *row) for name, row in zip(names, rows, strict=True)]
    return table(["tenants", *heading], others)


def _limits(costs: Costs, measured: Measured, assumed: Assumed) -> str:
    rows = [(rounded(one.tenants), one.what, one.then) for one in limits(costs, measured, assumed)]
    return table(["tenants", "what happens", "what to do"], rows)
