"""A database on the cluster in which one node is reached through a proxy, and the workers' rig on it."""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import pytest

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.broker.factory import open_broker
from clientmgr.contracts import topics
from tests.citus.cluster import CitusCluster
from tests.citus.node_proxy import NodeProxy, between
from tests.streaming.rig import Rig
from tests.waiting import eventually


@dataclass(frozen=True)
class Weak:
    """The node that is reached through the proxy."""

    cluster: CitusCluster
    database: str
    node: tuple[str, int]
    proxy: NodeProxy

    def tenants(self) -> set[int]:
        """Those whose schemas are on it."""
        with self.cluster.connect(self.cluster.nodes[0], self.database) as connection:
            rows = connection.execute(
                "SELECT DISTINCT split_part(table_name::text, '.', 1) FROM citus_shards WHERE nodeport = %s",
                (self.proxy.port,),
            )
            return {int(name.removeprefix("tenant_")) for (name,) in rows}

    def prepared(self) -> int:
        with self.cluster.connect(self.node, self.database) as connection:
            row = connection.execute(
                "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"
            ).fetchone()
            assert row is not None
            return int(row[0])

    def waiting(self) -> bool:
        """Whether somebody waits for a lock there."""
        with self.cluster.connect(self.node, self.database) as connection:
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            ).fetchone()
            return row != (0,)

    def recover(self) -> None:
        """What Citus' maintenance does by itself, each citus.recover_2pc_interval."""
        with self.cluster.connect(self.cluster.nodes[0], self.database) as connection:
            connection.execute("SELECT recover_prepared_transactions()")


@pytest.fixture
def weak_node(postgres_server: CitusCluster, database: Database) -> Iterator[Weak]:
    name = database.url.partition("?")[0].rpartition("/")[2]
    node = postgres_server.nodes[1]
    with between(node) as proxy, postgres_server.connect(postgres_server.nodes[0], name) as connection:
        connection.execute("ALTER DATABASE " + name + " SET citus.node_connection_timeout = 1000")
        connection.execute(
            "SELECT citus_update_node(nodeid, '127.0.0.1', %s) FROM pg_dist_node WHERE nodename = %s AND nodeport = %s",
            (proxy.port, *node),
        )
        # Citus' maintenance tells the nodes of it.
        behind = "SELECT count(*) FROM pg_dist_node WHERE NOT metadatasynced"
        eventually(lambda: connection.execute(behind).fetchone() == (0,), "every node knows of the proxy")
        yield Weak(postgres_server, name, node, proxy)


@pytest.fixture
async def rig(
    anyio_backend: str, database: Database, settings_for: Callable[[Database], Settings]
) -> AsyncIterator[Rig]:
    settings = settings_for(database)
    async with open_broker(settings, database) as broker:
        for topic in (topics.WRITER, topics.REPUBLISHER, topics.WRITER_ERRORS):
            await broker.ensure_topic(topic)
            await broker.ensure_subscription(topic, topic)
        yield Rig(settings, database, broker)
