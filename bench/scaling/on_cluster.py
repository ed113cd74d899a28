"""The arithmetic of a Citus cluster: what grows on the coordinator, on a node, and what ends first. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.scaling.limits import Limit, until
from bench.scaling.markdown import duration, rounded, size, table
from bench.scaling.measured import ClusterOfASize, Measured
from bench.scaling.model import GB, HOUR_S, Growth, Need, consumers_of_a_writer, line

MEASURED_NODES: Final = 2
ADD_NODE_LOCKS: Final = 75
"""A tenant, on the node that is added: 37,554 were seen with 500 tenants."""
NOT_MEASURED: Final = "No cluster was measured."


@dataclass(frozen=True)
class ClusterCosts:
    """What each thing grows by with the tenants of the whole cluster, of two nodes."""

    activate_s: Growth
    """By the tenants that it takes."""
    migrate_s: Growth
    nightly_s: Growth
    coordinator_relations: Growth
    node_relations: Growth
    coordinator_catalogue: Growth
    node_catalogue: Growth
    placing_rows: Growth
    """Of Citus' own tables, on the coordinator and on every node."""
    add_node_s: Growth
    dump_s: Growth
    dump_locks: Growth
    coordinator_writer: Growth
    """Memory of one of the writer's backends at the coordinator, by the tenants that it has worked for."""
    node_writer: Growth
    """Of the one that it has on a node for its half of them."""
    move_s: float
    """Of a new tenant to the emptiest node."""

    @classmethod
    def of(cls, measured: Measured) -> "ClusterCosts":
        sizes = measured.cluster
        writers = [one for one in measured.cluster_backends if one.work.startswith("writer") and not one.recycled_after]

        def by_tenants(value: Callable[[ClusterOfASize], float]) -> Growth:
            return line((one.tenants, value(one)) for one in sizes)

        last = sizes[-1]
        at_once = last.uneven_activated * last.activate_s / max(last.activated, 1)
        return cls(
            activate_s=line((one.activated, one.activate_s) for one in sizes),
            migrate_s=by_tenants(lambda one: one.migrate_s),
            nightly_s=by_tenants(lambda one: one.collect_s + one.orphans_s),
            coordinator_relations=by_tenants(lambda one: one.coordinator.relations),
            node_relations=by_tenants(lambda one: one.node.relations),
            coordinator_catalogue=by_tenants(lambda one: one.coordinator.catalogue_bytes),
            node_catalogue=by_tenants(lambda one: one.node.catalogue_bytes),
            placing_rows=by_tenants(lambda one: one.coordinator.placing_rows),
            add_node_s=by_tenants(lambda one: one.add_node_s),
            dump_s=by_tenants(lambda one: one.dump_s),
            dump_locks=by_tenants(lambda one: one.dump_locks),
            coordinator_writer=line((one.schemas, one.private_bytes) for one in writers),
            node_writer=line((one.schemas, one.node_bytes) for one in writers),
            move_s=max(last.uneven_s - at_once, 0.0) / max(last.uneven_moved, 1),
        )

    def node_catalogue_at(self, tenants: float, nodes: float) -> float:
        """Of one of so many nodes: empty tables for all tenants, which more nodes do not make fewer, and its own."""
        own = self.coordinator_catalogue.each
        empty = self.node_catalogue.each - own / MEASURED_NODES
        return self.node_catalogue.constant + (empty + own / nodes) * tenants


def cluster_limits(costs: ClusterCosts) -> Sequence[Limit]:
    """Of one coordinator, whatever nodes it has; the first one first."""
    backends = consumers_of_a_writer()
    found = [
        Limit(
            f"one writer's {backends} backends hold 16 GB at the coordinator",
            until(costs.coordinator_writer, 16 * GB / backends),
            "shorter-lived connections; several installations",
        ),
        Limit(
            "pg_dump at the coordinator needs more locks than PostgreSQL's default table of 6,400 has",
            until(costs.dump_locks, 6400),
            "physical backups of every node",
        ),
        Limit(
            "citus_add_node needs more locks than PostgreSQL's default table of 6,400 has on the new node",
            6400 / ADD_NODE_LOCKS,
            "raise max_locks_per_transaction on every node: 64 for each 85 tenants with 100 connections",
        ),
        Limit(
            "the next node takes an hour to be told of all tenants",
            until(costs.add_node_s, HOUR_S),
            "add nodes before tenants; several installations",
        ),
        Limit(
            "the activation of all of them takes a day, on the machine that measured",
            until(costs.activate_s, 24 * HOUR_S),
            "several installations",
        ),
        Limit(
            "a catalogue has 64 GB, on the coordinator and on every node",
            until(costs.coordinator_catalogue, 64 * GB),
            "several installations: more nodes do not help",
        ),
    ]
    return sorted(found, key=lambda one: one.tenants)


def cluster_blocks(measured: Measured, needs: Sequence[Need]) -> dict[str, str]:
    """By the name of the place in the page."""
    names = ("scaling-cluster", "scaling-cluster-lines", "scaling-cluster-steps", "scaling-cluster-limits")
    if not measured.cluster:
        return dict.fromkeys(names, NOT_MEASURED)
    costs = ClusterCosts.of(measured)
    larger = [one for one in needs if one.step.tenants >= measured.cluster[-1].tenants]
    headings = ["", *(f"{one.tenants:,} tenants" for one in measured.cluster)]
    limits = [(rounded(one.tenants), one.what, one.then) for one in cluster_limits(costs)]
    return {
        "scaling-cluster": f"{table(headings, size_rows(measured.cluster))}\n\n{_backends(measured)}",
        "scaling-cluster-lines": _lines(costs),
        "scaling-cluster-steps": _steps(costs, larger),
        "scaling-cluster-limits": table(["tenants", "what happens", "what to do"], limits),
    }


def size_rows(sizes: Sequence[ClusterOfASize]) -> list[tuple[str, ...]]:
    """What was measured, a column for each size."""
    return [
        ("load average of the machine when it began", *(one.load for one in sizes)),
        ("activation of the new ones", *(f"{one.activated:,} in {one.activate_s:.1f} s" for one in sizes)),
        ("of them moved to the emptiest node", *(f"{one.moved:,}" for one in sizes)),
        (
            "activation while one node is full",
            *(f"{one.uneven_activated} in {one.uneven_s:.1f} s, {one.uneven_moved} moved" for one in sizes),
        ),
        ("one column for all", *(f"{one.migrate_s:.1f} s" for one in sizes)),
        ("the dashboard's pass", *(f"{one.collect_s:.1f} s" for one in sizes)),
        ("search for orphans", *(f"{one.orphans_s:.1f} s" for one in sizes)),
        ("the dashboard's first page", *(f"{one.page_s * 1000:.0f} ms" for one in sizes)),
        *_of_both("rows of `pg_class`", lambda one: f"{one:,}", "relations", sizes),
        *_of_both("catalogue", size, "catalogue_bytes", sizes),
        *_of_both("rows of Citus' own tables", lambda one: f"{one:,}", "placing_rows", sizes),
        *_of_both("database", size, "database_bytes", sizes),
        *_of_both("connections at most", str, "connections", sizes),
        ("a look for deadlocks", *(f"{one.deadlocks_s * 1000:.0f} ms" for one in sizes)),
        ("a look for commits that a crash left", *(f"{one.recovery_s * 1000:.0f} ms" for one in sizes)),
        ("`citus_add_node`", *(f"{one.add_node_s:.1f} s" for one in sizes)),
        ("`pg_dump` of the coordinator", *(f"{one.dump_s:.1f} s" for one in sizes)),
        ("locks of `pg_dump`", *(f"{one.dump_locks:,}" for one in sizes)),
    ]


def _of_both(
    what: str, shown: Callable[[int], str], name: str, sizes: Sequence[ClusterOfASize]
) -> Sequence[tuple[str, ...]]:
    return [
        (f"{what}, {where}", *(shown(getattr(one, name)) for one in servers))
        for where, servers in (
            ("coordinator", [one.coordinator for one in sizes]),
            ("a node", [one.node for one in sizes]),
        )
    ]


def _backends(measured: Measured) -> str:
    rows = [
        (
            one.work,
            f"{one.schemas:,}",
            f"after {one.recycled_after:,}" if one.recycled_after else "never",
            size(one.private_bytes),
            size(one.node_bytes),
            str(one.node_connections),
            f"{one.first_s / one.schemas * 1000:.1f} ms",
            f"{one.again_s / one.schemas * 1000:.1f} ms" if one.again_s else "",
        )
        for one in measured.cluster_backends
    ]
    return table(
        ["work", "tenants", "renewed", "at the coordinator", "on a node", "backends on nodes", "first time", "again"],
        rows,
    )


def _lines(costs: ClusterCosts) -> str:
    found = [
        ("activation", costs.activate_s, 1e3, "ms"),
        ("moving an empty tenant", Growth(0, costs.move_s), 1e3, "ms"),
        ("one column", costs.migrate_s, 1e3, "ms"),
        ("both nightly passes", costs.nightly_s, 1e3, "ms"),
        ("rows of `pg_class`, coordinator", costs.coordinator_relations, 1, ""),
        ("rows of `pg_class`, each of two nodes", costs.node_relations, 1, ""),
        ("catalogue, coordinator", costs.coordinator_catalogue, 1e-3, "kB"),
        ("catalogue, each of two nodes", costs.node_catalogue, 1e-3, "kB"),
        ("rows of Citus' own tables, everywhere", costs.placing_rows, 1, ""),
        ("`citus_add_node`", costs.add_node_s, 1e3, "ms"),
        ("`pg_dump` of the coordinator", costs.dump_s, 1e3, "ms"),
        ("a writer's backend, coordinator", costs.coordinator_writer, 1e-3, "kB"),
        ("a writer's backend, each of two nodes", costs.node_writer, 1e-3, "kB"),
    ]
    rows = [
        (what, f"{growth.constant * unit:,.0f} {name}".strip(), f"{growth.each * unit:,.3g} {name}".strip())
        for what, growth, unit, name in found
    ]
    return table(["what", "constant", "a tenant"], rows)


def _steps(costs: ClusterCosts, needs: Sequence[Need]) -> str:
    """What one coordinator has, and each of its nodes."""
    clusters = [
        (one.step.tenants / one.installations, max(one.nodes / one.installations, MEASURED_NODES)) for one in needs
    ]
    rows = [
        ("tenants of a coordinator", *(f"{tenants:,.0f}" for tenants, _ in clusters)),
        ("its nodes", *(f"{nodes:,.0f}" for _, nodes in clusters)),
        ("catalogue of the coordinator", *(size(costs.coordinator_catalogue.at(tenants)) for tenants, _ in clusters)),
        ("catalogue of each node", *(size(costs.node_catalogue_at(*one)) for one in clusters)),
        (
            "rows of Citus' own tables, everywhere",
            *(f"{costs.placing_rows.at(tenants):,.0f}" for tenants, _ in clusters),
        ),
        ("a writer's backend, coordinator", *(size(costs.coordinator_writer.at(tenants)) for tenants, _ in clusters)),
        (
            "a writer's backend, a node",
            *(size(costs.node_writer.at(tenants * MEASURED_NODES / nodes)) for tenants, nodes in clusters),
        ),
        ("the next node is told of all in", *(duration(costs.add_node_s.at(tenants)) for tenants, _ in clusters)),
        ("all of them activated in", *(duration(costs.activate_s.at(tenants)) for tenants, _ in clusters)),
        ("one column for all in", *(duration(costs.migrate_s.at(tenants)) for tenants, _ in clusters)),
    ]
    return table(["all tenants", *(f"**{one.step.tenants:,}**" for one in needs)], rows)
