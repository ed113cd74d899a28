"""The same database on a Citus cluster whose coordinator CITUS_DATABASE_URL names; it must be on this machine.

Of three nodes or more the last one is kept apart, to be added at each size: that is what `citus_add_node` costs.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import Connection

from bench.batch.session import Driver
from bench.harness.servers import BenchPostgres
from bench.scaling.measured import ClusterOfASize, NodeOfASize
from bench.scaling.tenants import GrowingDatabase
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from tests.citus.cluster import CitusCluster, ClusterDatabases
from tests.databases import database_on

NodeAddress = tuple[str, int]

UNEVEN: Final = 20
"""Tenants that are activated while one node is full."""

_NODE = """
SELECT (SELECT count(*) FROM pg_class),
    (SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class AS c
        WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind = 'r'),
    (SELECT count(*) FROM pg_dist_partition) + (SELECT count(*) FROM pg_dist_shard)
    + (SELECT count(*) FROM pg_dist_placement) + (SELECT count(*) FROM pg_dist_schema)
    + (SELECT count(*) FROM pg_dist_object) + (SELECT count(*) FROM pg_dist_colocation),
    (SELECT sum(pg_total_relation_size(to_regclass(name))) FROM unnest(ARRAY[
        'pg_dist_partition', 'pg_dist_shard', 'pg_dist_placement', 'pg_dist_schema', 'pg_dist_object',
        'pg_dist_colocation']) AS name),
    pg_database_size(current_database())
"""

_CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = %s AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND application_name <> 'bench watch'
"""


class BenchCluster(BenchPostgres):
    """Servers that run already: nobody else should use them meanwhile."""

    def __init__(self, folder: Path) -> None:
        self._cluster = CitusCluster(folder)
        self.nodes: list[NodeAddress] = self._cluster.nodes
        self.spare = self.nodes.pop() if len(self.nodes) > 3 else None
        self._databases = ClusterDatabases(self._cluster)

    def url(self, database: str) -> str:
        return self._cluster.url(database)

    def superuser_url(self, database: str) -> str:
        return self._cluster.superuser_url(database)

    def node_urls(self, database: str) -> list[str]:
        """Of the nodes, without the coordinator, as superuser."""
        return [self._cluster.conninfo(node, database) for node in self.nodes[1:]]

    def database(self, name: str) -> Database:
        return database_on(self._cluster, name)

    def create_database(self, name: str) -> None:
        self.drop_database(name)
        self._databases.create(name)

    def drop_database(self, name: str) -> None:
        for node in (*self.nodes, *([self.spare] if self.spare else [])):
            self._databases.drop_on(node, name)

    def connect(self, node: NodeAddress, name: str) -> Connection[Any]:
        return self._cluster.connect(node, name)

    def settle(self) -> None:
        for node in self.nodes:
            with self._cluster.connect(node) as connection:
                connection.execute("CHECKPOINT")

    def cpu_seconds(self) -> float | None:
        return None

    def add_node_s(self, name: str) -> float:
        """The spare one, which is gone again afterwards. 0 without one."""
        if self.spare is None:
            return 0.0
        self._databases.drop_on(self.spare, name)
        self._databases.create_on(self.spare, name)
        with self._cluster.connect(self.nodes[0], name) as connection:
            took = _seconds(lambda: connection.execute("SELECT citus_add_node(%s, %s)", self.spare))
            connection.execute("SELECT citus_remove_node(%s, %s)", self.spare)
        self._databases.drop_on(self.spare, name)
        return took

    @contextlib.contextmanager
    def watched(self, name: str) -> Iterator[dict[NodeAddress, int]]:
        """The most connections that each node had meanwhile."""
        most = dict.fromkeys(self.nodes, 0)
        ended = threading.Event()

        def watch() -> None:
            with contextlib.ExitStack() as stack:
                open_to = {node: stack.enter_context(self._cluster.connect(node)) for node in self.nodes}
                while not ended.wait(0.05):
                    for node, connection in open_to.items():
                        ((count,),) = connection.execute(_CONNECTIONS, (name,)).fetchall()
                        most[node] = max(most[node], count)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield most
        finally:
            ended.set()
            watcher.join()


class ClusterDatabase(GrowingDatabase):
    """As on one server, and what a cluster has besides."""

    def __init__(self, server: BenchCluster, driver: Driver, folder: Path) -> None:
        super().__init__(server, driver, folder)
        self._cluster = server

    def on_cluster(self, tenants: int) -> ClusterOfASize:
        server, name = self._cluster, self.name
        load = " ".join(f"{one:.1f}" for one in os.getloadavg())
        moved_before = self._moves()
        with server.watched(name) as most:
            steps = self.steps(tenants)
        moved = self._moves() - moved_before
        nodes = [self._node(node, most[node]) for node in server.nodes]
        with psycopg.connect(server.superuser_url(name), autocommit=True) as connection:
            deadlocks_s = _seconds(lambda: connection.execute("SELECT check_distributed_deadlocks()"))
            recovery_s = _seconds(lambda: connection.execute("SELECT recover_prepared_transactions()"))
        dump_s, dump_locks = self.dump()
        add_node_s = server.add_node_s(name)
        uneven_s, uneven_moved = self._uneven()
        return ClusterOfASize(
            tenants=tenants,
            nodes=len(nodes) - 1,
            load=load,
            **steps,
            moved=moved,
            uneven_s=uneven_s,
            uneven_activated=UNEVEN,
            uneven_moved=uneven_moved,
            coordinator=nodes[0],
            node=max(nodes[1:], key=lambda one: one.database_bytes),
            deadlocks_s=deadlocks_s,
            recovery_s=recovery_s,
            add_node_s=add_node_s,
            dump_s=dump_s,
            dump_locks=dump_locks,
        )

    def _moves(self) -> int:
        with self.database.connect(Role.READER) as connection:
            ((moved,),) = connection.execute(
                "SELECT count(*) FROM clientmgr.audit_log WHERE action = 'tenant.move' AND outcome = 'moved'"
            ).fetchall()
            return int(moved)

    def _node(self, node: NodeAddress, connections: int) -> NodeOfASize:
        with self._cluster.connect(node, self.name) as connection:
            row = connection.execute(_NODE).fetchone() or ()
        relations, catalogue, placing_rows, placing_bytes, size = map(int, row)
        return NodeOfASize(relations, catalogue, placing_rows, placing_bytes, size, connections)

    def _uneven(self) -> tuple[float, int]:
        """More tenants, while one node has much more than the other."""
        next_one = len(self.customers) + 1
        newcomers = [CustomerId(number) for number in range(next_one, next_one + UNEVEN)]
        before = self._moves()
        self._heavier(10**12)
        took = _seconds(lambda: self.changed(UNEVEN, self.manager().activate, newcomers))
        self._heavier(-(10**12))
        self.customers += newcomers
        return took, self._moves() - before

    def _heavier(self, size: int) -> None:
        with self.database.connect(Role.OWNER) as connection:
            connection.execute(
                "UPDATE clientmgr.dashboard_tenant_metrics SET table_bytes = table_bytes + %s WHERE customer_id = %s",
                (size, self.customers[0]),
            )


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
