"""The arithmetic: what so many tenants and devices need, from what a run measured. Pure; `__main__.py` writes it down.

Everything is a line through what was measured at three sizes: a constant and so much a tenant. What nobody measured is
stated in `Assumed`, and is no more than that.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from bench.scaling.measured import Backend, Measured, Partitions, TenantsOfASize
from clientmgr.base.settings import Settings
from clientmgr_dagster.policies import TENANTS_PER_RUN

GB, TB, DAY_S, HOUR_S = 1e9, 1e12, 86_400, 3_600


@dataclass(frozen=True)
class Growth:
    """A constant and so much for each."""

    constant: float
    each: float

    def at(self, number: float) -> float:
        return max(self.constant + self.each * number, 0.0)


def line(points: Iterable[tuple[float, float]]) -> Growth:
    """Least squares. A point weighs by its size, or the largest alone would say what the small ones are like."""
    given = [(x, y, 1 / max(x, 1.0)) for x, y in points]
    weight = sum(w for _, _, w in given)
    mean_x = sum(x * w for x, _, w in given) / weight
    mean_y = sum(y * w for _, y, w in given) / weight
    spread = sum(w * (x - mean_x) ** 2 for x, _, w in given)
    each = sum(w * (x - mean_x) * (y - mean_y) for x, y, w in given) / spread if spread else 0.0
    return Growth(mean_y - each * mean_x, each)


@dataclass(frozen=True)
class Assumed:
    """What was not measured here: how busy devices are, how large a server is, what others promise."""

    events_a_device_day: float = 10.0
    peak_factor: float = 5.0
    """The busiest hour's rate, of the day's mean."""
    node_cores: int = 32
    node_memory_bytes: float = 256 * GB
    node_disk_bytes: float = 4 * TB
    node_reads_bytes_a_second: float = 1 * GB
    """What a scan of a table that is not in memory goes by."""
    bloat: float = 1.5
    """Room for dead rows, WAL and growth, of what a vacuumed table takes."""
    busy: float = 0.5
    """The share of a node's cores that events may take at the peak."""
    log_events_a_second: float = 20_000.0
    """Of a log on one server: published once, read once. docs/benchmarks.md has 31,500 to 52,700 for each by itself."""
    pubsub_bytes_a_second: float = 200e6
    """Publish throughput of a large region by default, as Google documents it; it can be raised."""
    event_bytes: float = 500.0
    tenants_a_node: int = 20_000
    """Twice what was measured: the lines are believed so far, and a backend that works for all of them has 2 GB."""
    tenants_an_installation: int = 100_000
    """Ten times what was measured of the registry, Dagster and the pages of operators."""
    night_hours: float = 6.0
    spark_cores: int = 16
    runs_at_once: int = 4
    """`max_concurrent_runs`."""


@dataclass(frozen=True)
class Costs:
    """What each thing grows by, from a run."""

    activate_s: Growth
    migrate_s: Growth
    nightly_s: Growth
    """Spark's part of the dashboard's pass and the orphans' search: of the machine that measured."""
    tenant_bytes: Growth
    catalogue_bytes: Growth
    relations: Growth
    files: Growth
    dump_s: Growth
    dump_locks: Growth
    crash_start_s: Growth
    look_s: Growth
    mapper_bytes: Growth
    writer_bytes: Growth
    """Of one backend, by the tenants that it has worked for."""
    list_s: Growth
    run_s: float
    """One of Dagster's runs over a chunk, without its work."""
    device_bytes: float
    count_s_a_device: float
    events_a_core_second: float
    server_share: float
    """Of the processor time of an event."""
    connections: int

    @classmethod
    def of(cls, measured: Measured) -> "Costs":
        def by_tenants(value: Callable[[TenantsOfASize], float]) -> Growth:
            return line((one.tenants, value(one)) for one in measured.sizes)

        def by_schemas(work: str) -> Growth:
            return line((one.schemas, one.private_bytes) for one in _kept(measured.backends, work))

        partitions = measured.partitions
        writer, device = measured.writer, measured.device
        return cls(
            activate_s=line((one.activated, one.activate_s) for one in measured.sizes),
            migrate_s=by_tenants(lambda one: one.migrate_s),
            nightly_s=by_tenants(lambda one: one.collect_s + one.orphans_s),
            tenant_bytes=by_tenants(lambda one: one.database_bytes),
            catalogue_bytes=by_tenants(lambda one: one.catalogue_bytes),
            relations=by_tenants(lambda one: one.relations),
            files=by_tenants(lambda one: one.files),
            dump_s=by_tenants(lambda one: one.dump_s),
            dump_locks=by_tenants(lambda one: one.dump_locks),
            crash_start_s=by_tenants(lambda one: one.crash_start_s),
            look_s=by_tenants(lambda one: one.autovacuum_look_s),
            mapper_bytes=by_schemas("mapper"),
            writer_bytes=by_schemas("writer"),
            list_s=line((one.partitions, one.list_s) for one in partitions),
            run_s=max(partitions, key=_run_size).run_s,
            device_bytes=device.bytes_a_device,
            count_s_a_device=device.count_s / device.devices,
            events_a_core_second=writer.events_a_core_second,
            server_share=writer.server_cpu_s / (writer.server_cpu_s + writer.client_cpu_s),
            connections=sum(measured.installation.connections.values()),
        )


def _kept(backends: Iterable[Backend], work: str) -> list[Backend]:
    return [one for one in backends if one.work.startswith(work) and not one.recycled_after]


def _run_size(one: Partitions) -> tuple[int, int]:
    return one.run_tenants, one.partitions


@dataclass(frozen=True)
class Step:
    """A size of the whole."""

    tenants: int
    devices: int


STEPS: Final = tuple(Step(10**power, 10 ** (power + 4)) for power in range(1, 7))
"""10 to a million tenants, 10,000 devices each: the last has 10 billion devices."""


@dataclass(frozen=True)
class Need:
    """What a size needs, all installations together."""

    step: Step
    storage_bytes: float
    events_a_second: float
    """At the peak."""
    daemon_cores: float
    server_cores: float
    backend_bytes: float
    """Of all writers' and mappers' backends, once each has worked for all tenants of its node."""
    connections: int
    night_s: float
    runs: int
    """Of Dagster, for one nightly job."""
    installations: int
    nodes: int
    """PostgreSQL servers that hold tenants."""
    because: str
    """What asks for so many nodes."""
    on_pubsub: bool


def need(step: Step, costs: Costs, assumed: Assumed) -> Need:
    """The smallest set-up that carries it."""
    storage = (costs.tenant_bytes.at(step.tenants) + step.devices * costs.device_bytes) * assumed.bloat
    events = step.devices * assumed.events_a_device_day / DAY_S * assumed.peak_factor
    cores = events / costs.events_a_core_second
    server_cores = cores * costs.server_share
    asked = {
        "storage": storage / assumed.node_disk_bytes,
        "cores": server_cores / (assumed.node_cores * assumed.busy),
        "tenants": step.tenants / assumed.tenants_a_node,
    }
    because, most = max(asked.items(), key=lambda one: one[1])
    nodes = max(math.ceil(most), 1)
    writers = max(math.ceil(cores - server_cores), 1)
    consumers = writers * consumers_of_a_writer()
    on_node = step.tenants / nodes
    backends = consumers * costs.writer_bytes.at(on_node)
    runs = math.ceil(step.tenants / TENANTS_PER_RUN)
    installations = max(math.ceil(step.tenants / assumed.tenants_an_installation), 1)
    of_spark = costs.nightly_s.at(step.tenants) + step.devices * costs.count_s_a_device * 2
    of_dagster = 2 * runs * costs.run_s / assumed.runs_at_once
    # What was measured had two cores: nodes and Spark's cores share the work, installations work beside each other.
    at_once = max(min(nodes * assumed.node_cores, installations * assumed.spark_cores) / 2, 1)
    in_memory = nodes * assumed.node_memory_bytes / 2
    from_disk = max(2 * (step.devices * costs.device_bytes * assumed.bloat - in_memory), 0.0)
    night = (
        max(of_spark / at_once, from_disk / (nodes * assumed.node_reads_bytes_a_second)) + of_dagster / installations
    )
    return Need(
        step,
        storage,
        events,
        cores - server_cores,
        server_cores,
        backends,
        installations * costs.connections + consumers,
        night,
        runs,
        installations,
        nodes,
        because if nodes > 1 else "",
        events > assumed.log_events_a_second * installations,
    )


def consumers_of_a_writer() -> int:
    """Its connections that work for tenants, and one that listens."""
    return int(Settings.model_fields["writer_concurrency"].default) + 1
