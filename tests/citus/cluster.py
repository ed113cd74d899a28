"""A Citus cluster that runs already, in the place of the tests' own server: CITUS_DATABASE_URL names its coordinator.

Its superuser's login makes the databases, on every node. Nodes must trust each other, and this machine.
"""

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
from psycopg import Connection, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from clientmgr.base.logins import LOGINS, url_of
from clientmgr.base.migrations import ensure_database_grants
from clientmgr.base.sqlfiles import named_queries
from clientmgr.local.embedded.postgres_logins import OWNER, make_logins
from tests.databases import Databases

CLUSTER_URL = os.environ.get("CITUS_DATABASE_URL", "")
WHY_SKIPPED = "CITUS_DATABASE_URL names no Citus coordinator: its superuser's URL is what these tests need"
ON_CLUSTER = bool(os.environ.get("CITUS_TESTS"))
"""Whether all tests of this run have their databases on the cluster."""

PASSWORD = "of-the-tests"


class CitusCluster:
    """What tests ask of a server, of a coordinator."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with self.connect() as connection:
            found = connection.execute(
                "SELECT nodename, nodeport FROM pg_dist_node WHERE isactive AND noderole = 'primary' ORDER BY groupid"
            ).fetchall()
        self.nodes = [(str(host), int(port)) for host, port in found]
        """The coordinator first."""
        self.everywhere(self._make_logins)

    def url(self, database: str) -> str:
        return url_of(OWNER, PASSWORD, _of_database(CLUSTER_URL, database))

    def superuser_url(self, database: str = "postgres") -> str:
        return _of_database(CLUSTER_URL, database)

    def role_settings(self, database: str) -> dict[str, str]:
        return {setting: url_of(login, PASSWORD, self.url(database)) for login, setting in LOGINS.items()}

    def connect(self, node: tuple[str, int] | None = None, database: str = "postgres") -> Connection[Any]:
        """As superuser, to the coordinator or to a node; what is said there stays there."""
        conninfo = make_conninfo(self.conninfo(node, database), options="-c citus.enable_ddl_propagation=off")
        return psycopg.connect(conninfo, autocommit=True)

    def conninfo(self, node: tuple[str, int] | None, database: str) -> str:
        params: dict[str, Any] = {**conninfo_to_dict(CLUSTER_URL), "dbname": database}
        if node is not None:
            params |= {"host": node[0], "port": node[1]}
        return make_conninfo(**params)

    def everywhere(self, work: Callable[[tuple[str, int]], object]) -> None:
        with ThreadPoolExecutor(len(self.nodes)) as executor:
            list(executor.map(work, self.nodes))

    def _make_logins(self, node: tuple[str, int]) -> None:
        with self.connect(node) as connection:
            # Other runs do the same at the same time.
            connection.execute("SELECT pg_advisory_lock(7100)")
            make_logins(connection, dict.fromkeys((OWNER, *LOGINS), PASSWORD))
            connection.execute(f"GRANT SET ON PARAMETER session_replication_role TO {OWNER}")


class ClusterDatabases(Databases):
    """Makes databases on all nodes. Of a template each node makes its own copy, and they fit: it knows its nodes."""

    def __init__(self, cluster: CitusCluster) -> None:
        super().__init__(cluster)
        self._cluster = cluster
        self._templates: set[str] = set()

    def create(self, name: str, template: str = "template1") -> None:
        cluster = self._cluster
        if template != "template1" and template not in self._templates:
            cluster.everywhere(lambda node: self._close(node, template))
            self._templates.add(template)
        cluster.everywhere(lambda node: self.create_on(node, name, template))
        if template == "template1":
            with cluster.connect(cluster.nodes[0], name) as connection:
                host, port = cluster.nodes[0]
                connection.execute("SELECT citus_set_coordinator_host(%s, %s)", (host, port))
                for node in cluster.nodes[1:]:
                    connection.execute("SELECT citus_add_node(%s, %s)", node)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """To add nodes and to migrate bring roles to the nodes: two databases at once get in each other's way."""
        with self._cluster.connect(self._cluster.nodes[0]) as connection:
            connection.execute("SELECT pg_advisory_lock(7101)")
            yield

    def drop(self, name: str) -> None:
        self._cluster.everywhere(lambda node: self.drop_on(node, name))

    def drop_on(self, node: tuple[str, int], name: str) -> None:
        self._on(node, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def create_on(self, node: tuple[str, int], name: str, template: str = "template1") -> None:
        """A database that no other node knows of yet."""
        statement = "CREATE DATABASE {} OWNER {} TEMPLATE {} STRATEGY FILE_COPY"
        names = sql.Identifier(name), sql.Identifier(OWNER), sql.Identifier(template)
        self._on(node, sql.SQL(statement).format(*names))
        with self._cluster.connect(node, name) as connection:
            if template == "template1":
                connection.execute("CREATE EXTENSION citus")
            else:
                ensure_database_grants(connection)
                self._settings_of_template(node, connection)

    def _settings_of_template(self, node: tuple[str, int], connection: Connection[Any]) -> None:
        """No copy of a database carries them with it."""
        if node == self._cluster.nodes[0]:
            for (statement,) in connection.execute(
                named_queries("operations/queries/citus.sql")["defaults"]
            ).fetchall():
                connection.execute(statement)

    def _close(self, node: tuple[str, int], template: str) -> None:
        """Nobody may be connected to what is copied: not even Citus' maintenance."""
        with self._cluster.connect(node) as connection:
            connection.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(template)))
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                left = connection.execute(
                    "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE datname = %s", (template,)
                ).fetchall()
                if not left:
                    return
            raise TimeoutError(f"connections to {template} on {node} do not end")

    def _on(self, node: tuple[str, int], statement: sql.Composed) -> None:
        with self._cluster.connect(node) as connection:
            connection.execute(statement)


def template_name() -> str:
    """Several runs share a cluster: each has its own template."""
    return f"template_{uuid.uuid4().hex[:12]}"


def _of_database(url: str, database: str) -> str:
    head, _, query = url.partition("?")
    return f"{head.rpartition('/')[0]}/{database}" + (f"?{query}" if query else "")
