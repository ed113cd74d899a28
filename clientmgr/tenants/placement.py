"""Where tenants lie on a Citus cluster: its nodes, what lies on each and what is written there. Reads only."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg import Connection
from psycopg.rows import class_row

from clientmgr.base.citus import spreads_tenants
from clientmgr.base.customer_ids import CustomerId, schema_name
from clientmgr.base.errors import ClientManagerError, ErrorKind
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries

QUERIES: Final = named_queries("tenants/queries/placement.sql")

COORDINATOR: Final = 0
"""Its group. Tenants that are not distributed lie there."""

# A node that is gone costs a look at all of them so much, not Citus' half a minute; one that hangs, no more than this.
CONNECT_WITHIN_MS: Final = 3_000
ANSWER_WITHIN_MS: Final = 12_000


class NoClusterError(ClientManagerError):
    """There is nothing to place tenants on."""

    kind = ErrorKind.PERMANENT


@dataclass(frozen=True, slots=True)
class Node:
    """A server of the cluster."""

    group: int
    node_id: int
    host: str
    port: int
    is_active: bool
    takes_tenants: bool

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_coordinator(self) -> bool:
        return self.group == COORDINATOR


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tenant's schema lies."""

    customer_id: CustomerId
    group: int
    is_distributed: bool
    """False: the schema is the coordinator's alone. It was made before there was a cluster."""


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """What a node says of itself. What is None is not known."""

    trouble: str | None = None
    """Why it said nothing."""
    connections: int | None = None
    bytes: int | None = None
    """What tenants take on its disk: also what a move has just left behind."""
    rows_written_per_s: float | None = None
    tenants: dict[str, tuple[int, float | None]] | None = None
    """By schema: bytes, rows written per second."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A tenant that is being copied to another node: it moves there when all is there. Or it was, a minute ago."""

    customer_id: CustomerId
    group: int


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Citus' newest rebalancing."""

    job_id: int
    state: str
    started_at: datetime | None
    finished_at: datetime | None
    moved: int
    moves: int
    trouble: str | None

    @property
    def is_under_way(self) -> bool:
        return self.state not in ("finished", "cancelled", "failed")


@dataclass(frozen=True, slots=True)
class Placement:
    """The whole cluster at a moment."""

    nodes: list[Node]
    places: list[Place]
    loads: dict[int, NodeLoad]
    """By group."""
    copies: list[Copy]
    rebalance: Rebalance | None

    def address(self, group: int) -> str:
        return next((node.address for node in self.nodes if node.group == group), "?")

    def state_of(self, node: Node) -> str:
        """In a few words, for people."""
        trouble = self.loads.get(node.group, NodeLoad()).trouble
        if not node.is_active:
            return "not active"
        if trouble:
            return f"does not answer: {trouble}"
        if node.is_coordinator:
            return "coordinator, takes tenants" if node.takes_tenants else "coordinator"
        return "takes tenants" if node.takes_tenants else "takes no tenants"

    def load_of(self, customer_id: CustomerId, group: int) -> tuple[int | None, float | None]:
        """What a tenant has on a node: bytes, and rows written per second."""
        load = self.loads.get(group, NodeLoad())
        if load.tenants is None:
            return None, None
        return load.tenants.get(schema_name(customer_id), (0, None))


def require_cluster(connection: Connection[Any], settings: Settings) -> None:
    """Raise where this database is no coordinator: a sentence that says what to do."""
    if not spreads_tenants(connection, settings.citus):
        raise NoClusterError(
            "tenants lie on one PostgreSQL here, and there is nothing to place. On a Citus cluster's coordinator this "
            "shows and moves them (docs/citus.md)"
        )


def look(connection: Connection[Any], *, sample_s: float = 1.0) -> Placement:
    """Look at the cluster: twice at each node, `sample_s` apart, for how much is written. 0: once, and nobody knows."""
    nodes = find_nodes(connection)
    answers = earlier = _ask_nodes(connection, nodes)
    if sample_s:
        time.sleep(sample_s)
        answers = _ask_nodes(connection, nodes)
    loads = {group: _load(earlier[group], answer, sample_s) for group, answer in answers.items()}
    return Placement(nodes, find_places(connection), loads, find_copies(connection), find_rebalance(connection))


def find_nodes(connection: Connection[Any]) -> list[Node]:
    return [Node(*row) for row in connection.execute(QUERIES["nodes"])]


def find_places(connection: Connection[Any], customers: Sequence[CustomerId] | None = None) -> list[Place]:
    """Of these tenants, or of all that have a schema."""
    wanted = None if customers is None else list(customers)
    return [Place(*row) for row in connection.execute(QUERIES["places"], {"customer_ids": wanted})]


def find_copies(connection: Connection[Any]) -> list[Copy]:
    return [Copy(*row) for row in connection.execute(QUERIES["copies"])]


def find_rebalance(connection: Connection[Any]) -> Rebalance | None:
    with connection.cursor(row_factory=class_row(Rebalance)) as cursor:
        return cursor.execute(QUERIES["rebalance"]).fetchone()


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a node answers. Counters run since its statistics began."""

    trouble: str | None = None
    connections: int | None = None
    tenants: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By schema: bytes, rows written."""


def _ask_nodes(connection: Connection[Any], nodes: Sequence[Node]) -> dict[int, _Answer]:
    """By group."""
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL citus.node_connection_timeout = {CONNECT_WITHIN_MS:d}")
            connection.execute(f"SET LOCAL statement_timeout = {ANSWER_WITHIN_MS:d}")
            told = connection.execute(QUERIES["on_all_nodes"], {"command": QUERIES["on_a_node"]}).fetchall()
    except psycopg.errors.QueryCanceled:
        late = _Answer(trouble=f"a node did not answer within {ANSWER_WITHIN_MS // 1000} s, so nothing is known of any")
        return {node.group: late for node in nodes}
    answers = {node_id: _answer(success, text) for node_id, success, text in told}
    return {node.group: answers.get(node.node_id, _Answer(trouble="not asked")) for node in nodes}


def _answer(success: bool, text: str) -> _Answer:
    if not success:
        return _Answer(trouble=" ".join(text.split()))
    told = json.loads(text)
    return _Answer(
        None, told["connections"], {schema: (size, rows) for schema, (size, rows) in (told["tenants"] or {}).items()}
    )


def _load(earlier: _Answer, now: _Answer, seconds: float) -> NodeLoad:
    if now.trouble:
        return NodeLoad(now.trouble)
    tenants: dict[str, tuple[int, float | None]] = {}
    for schema, (size, rows) in now.tenants.items():
        before = earlier.tenants.get(schema)
        # After a move or a crash they are counted anew: then fewer are written than before.
        rate = max(rows - before[1], 0) / seconds if seconds and before is not None else None
        tenants[schema] = (size, rate)
    known = [rate for _, rate in tenants.values() if rate is not None]
    return NodeLoad(
        connections=now.connections,
        bytes=sum(size for size, _ in tenants.values()),
        rows_written_per_s=sum(known) if known or (seconds and not tenants) else None,
        tenants=tenants,
    )
