"""What a run measured, as plain figures: written by `python -m bench scaling --json FILE`, read by the model. Pure."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.harness.report import Listing


class TenantsOfASize(msgspec.Struct, frozen=True, tag="tenants", tag_field="part"):
    """One database, when it had so many tenants."""

    tenants: int
    activated: int
    """Of them, those that the activation took which was timed."""
    activate_s: float
    migrate_s: float
    """One column, for all of them."""
    collect_s: float
    orphans_s: float
    page_s: float
    """The dashboard's table of tenants, its first page, and the totals above it."""
    relations: int
    """Rows of pg_class."""
    attributes: int
    catalogue_bytes: int
    """All tables of pg_catalog, indexes included."""
    database_bytes: int
    files: int
    autovacuum_look_s: float
    """Processor time of one look at the database, when there is nothing to do."""
    dump_s: float
    """`pg_dump` of all, with 20 devices a tenant."""
    dump_locks: int
    lock_table: int
    """How many locks the server's table holds for certain."""
    crash_start_s: float
    shared_memory_bytes: int


class Backend(msgspec.Struct, frozen=True, tag="backend", tag_field="part"):
    """One backend after it has worked for so many tenants, one after the other."""

    work: str
    schemas: int
    recycled_after: int
    """A new connection after so many schemas; 0: never."""
    private_bytes: int
    """Its own pages; the most that any of the connections had."""
    pss_bytes: int
    """With its share of what it shares with others."""
    caches_bytes: int
    """Of it, what its catalogue and relation caches hold."""
    plans_bytes: int
    first_s: float
    again_s: float
    """The same work once more, with the caches full; 0 where connections are renewed."""
    node_bytes: int = 0
    """On a cluster: own pages of the largest backend that it has on a node."""
    node_connections: int = 0
    """On a cluster: how many backends it keeps on all nodes together."""


class NodeOfASize(msgspec.Struct, frozen=True):
    """One server of a cluster."""

    relations: int
    """Rows of pg_class: a node has an empty one for each table of every tenant, and its own tenants' besides."""
    catalogue_bytes: int
    placing_rows: int
    """Of Citus' own tables: which tables, shards, placements, schemas and objects there are."""
    placing_bytes: int
    database_bytes: int
    connections: int
    """The most that clients had there, Citus' own included, while tenants were activated and counted."""


class ClusterOfASize(msgspec.Struct, frozen=True, tag="cluster", tag_field="part"):
    """One database on a coordinator and some nodes, when it had so many tenants."""

    tenants: int
    nodes: int
    """Those that take tenants."""
    load: str
    """Of the machine, when it began."""
    activated: int
    activate_s: float
    migrate_s: float
    collect_s: float
    orphans_s: float
    page_s: float
    moved: int
    """By the activation, because another node had more room."""
    uneven_s: float
    """A second activation while one node is much fuller: of so many tenants, and so many were moved."""
    uneven_activated: int
    uneven_moved: int
    coordinator: NodeOfASize
    node: NodeOfASize
    """The one with the most."""
    deadlocks_s: float
    """Citus' look for deadlocks over all nodes, which it takes every two seconds."""
    recovery_s: float
    """Its look for commits that a crash has left."""
    add_node_s: float
    """`citus_add_node`: everything is told to a new node."""
    dump_s: float
    dump_locks: int


class Device(msgspec.Struct, frozen=True, tag="device", tag_field="part"):
    """A tenant with many devices, written by events."""

    devices: int
    bytes_by_relation: dict[str, int]
    count_s: float
    """The dashboard's query over all of them, from memory."""

    @property
    def bytes_a_device(self) -> float:
        return sum(self.bytes_by_relation.values()) / self.devices


class Writer(msgspec.Struct, frozen=True, tag="writer", tag_field="part"):
    """The writer daemon on a topic that is full, one process (`bench writer`)."""

    tenants: int
    events: int
    write_s: float
    client_cpu_s: float
    server_cpu_s: float

    @property
    def events_a_core_second(self) -> float:
        """Of the daemon's cores and the server's together."""
        return self.events / (self.client_cpu_s + self.server_cpu_s)


class Partitions(msgspec.Struct, frozen=True, tag="partitions", tag_field="part"):
    """Dagster with so many partitions."""

    partitions: int
    added: int
    add_s: float
    list_s: float
    requests: int
    request_s: float
    """What a schedule over all tenants asks for, made."""
    run_tenants: int
    run_s: float
    """A run over a chunk of neighbours, whose asset does nothing but say so."""
    log_bytes: int
    """Of the event log, after that run."""


class Installation(msgspec.Struct, frozen=True, tag="installation", tag_field="part"):
    """`clientmgr up` at rest."""

    connections: dict[str, int]
    """Of its database, by login."""


Figures = TenantsOfASize | ClusterOfASize | Backend | Device | Writer | Partitions | Installation


class Measured(msgspec.Struct, frozen=True):
    """All parts of one or several runs on one machine."""

    machine: str
    sizes: tuple[TenantsOfASize, ...]
    backends: tuple[Backend, ...]
    device: Device
    writer: Writer
    partitions: tuple[Partitions, ...]
    installation: Installation
    cluster: tuple[ClusterOfASize, ...] = ()
    cluster_backends: tuple[Backend, ...] = ()


def figures(*found: Figures) -> tuple[dict[str, Any], ...]:
    """As `Listing.figures` wants them."""
    return tuple(msgspec.to_builtins(one) for one in found)


def read_measured(*files: Path) -> Measured:
    """From what `--json` wrote. Several files, where sizes or parts were run one by one: they are put together."""
    found: dict[type, list[Any]] = {}
    machines: list[dict[str, Any]] = []
    for file in files:
        document = msgspec.json.decode(file.read_bytes())
        machines.append(document["machine"])
        for table in document["benchmarks"]["scaling"]:
            for one in msgspec.convert(table.get("figures", []), list[Figures]):
                found.setdefault(type(one), []).append(one)
    backends = sorted(found[Backend], key=lambda one: (one.work, one.recycled_after, one.schemas))
    return Measured(
        _described(machines),
        tuple(sorted(found[TenantsOfASize], key=lambda one: one.tenants)),
        tuple(one for one in backends if not one.node_connections),
        found[Device][-1],
        found[Writer][-1],
        tuple(sorted(found[Partitions], key=lambda one: one.partitions)),
        found[Installation][-1],
        tuple(sorted(found.get(ClusterOfASize, ()), key=lambda one: one.tenants)),
        tuple(one for one in backends if one.node_connections),
    )


def _described(machines: Sequence[dict[str, Any]]) -> str:
    loads = "; ".join(str(one["load_average"]) for one in machines)
    return f"{machines[-1]['cores']} cores, {machines[-1]['system']}; load averages when the runs began: {loads}"


def listing(title: str, headings: tuple[str, ...], rows: Sequence[tuple[str, ...]], *found: Figures) -> Listing:
    return Listing(title, headings, tuple(rows), figures=figures(*found))
