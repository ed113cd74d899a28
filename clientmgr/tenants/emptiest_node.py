"""New tenants go to the emptiest node of a Citus cluster.

Citus lets nobody choose where a schema is made: it takes its nodes in turn, whatever they hold. So a new tenant whose
turn was a fuller node is moved at once, while it is empty: that takes a fraction of a second.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import psycopg
from psycopg import Connection

from clientmgr.audit.log import AuditEntry, AuditLogger
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.logs import get_logger
from clientmgr.tenants.moves import ACTION
from clientmgr.tenants.placement import QUERIES, Node, Place, find_nodes, find_places
from clientmgr.tenants.results import explain

log = get_logger(__name__)

TENANT_WEIGHS: Final = 100_000_000
"""Besides its bytes, as for Citus' rebalancing by size: empty tenants are spread too, and none moves for a trifle."""

TOLERANCE: Final = 0.1
"""Nodes that differ by less, of the fuller one, count as even, as for Citus' rebalancing: a move takes as long as an
activation, and Citus' turns alone keep such nodes even."""


def place_new(connection: Connection[Any], audit: AuditLogger, created: Collection[CustomerId], *, actor: str) -> None:
    """Move those of the new tenants that another node has more room for. One that can't be stays."""
    nodes = find_nodes(connection)
    sizes = {CustomerId(row[0]): int(row[1]) for row in connection.execute(QUERIES["collected_sizes"])}
    for place, target in better_places(nodes, find_places(connection), sizes, created):
        source = next(node.address for node in nodes if node.group == place.group)
        wanted = {"customer_id": place.customer_id, "host": target.host, "port": target.port}
        entry = AuditEntry(
            place.customer_id,
            actor,
            ACTION,
            "moved",
            details={"from": source, "to": target.address, "why": "new, and this is the emptiest node"},
        )
        try:
            with connection.transaction():
                connection.execute(QUERIES["move_empty"], wanted)
                audit.append(connection, [entry])
        except psycopg.Error as error:
            log.warning(
                "a new tenant stays where it is, and not on the emptiest node",
                customer_id=place.customer_id,
                node=source,
                error=explain(error),
            )


def better_places(
    nodes: Sequence[Node], places: Sequence[Place], sizes: Mapping[CustomerId, int], created: Collection[CustomerId]
) -> list[tuple[Place, Node]]:
    """Which of the new tenants are better off elsewhere, one after the other: each counts where it goes."""
    able = {node.group: node for node in nodes if node.is_active and node.takes_tenants}
    weights = dict.fromkeys(able, 0)
    for place in places:
        if place.group in weights:
            weights[place.group] += TENANT_WEIGHS + sizes.get(place.customer_id, 0)
    moves = []
    for place in places:
        if place.customer_id not in created or place.group not in weights:
            continue
        emptiest = min(weights, key=lambda group: (weights[group], group))
        here = weights[place.group]
        if here - weights[emptiest] > max(TENANT_WEIGHS, here * TOLERANCE):
            weights[place.group] -= TENANT_WEIGHS
            weights[emptiest] += TENANT_WEIGHS
            moves.append((place, able[emptiest]))
    return moves
