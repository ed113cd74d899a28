"""Where a Citus cluster has its tenants, so that each node is asked for its own. Reads the catalogue of Citus.

A tenant that is read as a whole is asked for by its tables' own names, on the node that has it. Every node knows where
each tenant is: if it was moved since we looked, the node passes the question on, and the answer is never empty or old.
A tenant that is read in slices is asked for by the names of its shards, which are tables of the node like any other:
only those have pages, a file and a place in a snapshot.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from clientmgr.base.connection_rights import TooMightyError, connect_checked
from clientmgr.base.customer_ids import CustomerId, quoted_schema, schema_name
from clientmgr.base.logs import get_logger
from clientmgr_dagster.spark.packing import Place, TableSize

log = get_logger(__name__)

PAGE_BYTES = 8192
CONNECT_TIMEOUT_S = 5
"""A node that can be reached at all answers sooner; one that can't must not keep the read waiting."""

_PLACES: Final = """
SELECT wanted.customer_id, CASE WHEN n.groupid > 0 THEN n.nodename || ':' || n.nodeport ELSE '' END,
    array_agg(c.relname::text ORDER BY c.relname), array_agg(s.shardid ORDER BY c.relname)
FROM unnest(%(customers)s::bigint [], %(schemas)s::name []) AS wanted (customer_id, schema_name)
JOIN pg_namespace AS ns ON ns.nspname = wanted.schema_name
JOIN pg_class AS c ON c.relnamespace = ns.oid
JOIN pg_dist_shard AS s ON s.logicalrelid = c.oid
JOIN pg_dist_placement AS p ON p.shardid = s.shardid
JOIN pg_dist_node AS n ON n.groupid = p.groupid AND n.noderole = 'primary'
GROUP BY 1, 2
"""
# What Citus calls a shard can be looked up by name; in pg_class it is hidden from us.
_SHARDS: Final = """
SELECT wanted.customer_id, pg_relation_size(to_regclass(wanted.shard)) / %(page_bytes)s,
    pg_relation_filenode(to_regclass(wanted.shard))::bigint
FROM unnest(%(customers)s::bigint [], %(shards)s::text []) AS wanted (customer_id, shard)
WHERE to_regclass(wanted.shard) IS NOT NULL
ORDER BY 1
"""
_CONTACT_BOUNDS: Final = """
SELECT histogram_bounds::text::bigint [] FROM pg_stats
WHERE schemaname = %(schema)s AND tablename = %(shard)s AND attname = 'contact_id'
"""
_STILL_HERE: Final = """
SELECT shardid FROM pg_dist_placement
WHERE shardid = ANY(%s::bigint []) AND groupid = (SELECT groupid FROM pg_dist_local_group)
"""
_said: set[str] = set()


def places(connection: Connection[Any], customers: Collection[CustomerId]) -> dict[CustomerId, Place]:
    """Of those whose tables the cluster spreads; the others are tables of this server."""
    wanted = sorted(customers)
    asked = {"customers": wanted, "schemas": [schema_name(customer) for customer in wanted]}
    return {
        CustomerId(customer): Place(node, tuple(zip(tables, shards, strict=True)))
        for customer, node, tables, shards in connection.execute(_PLACES, asked)
    }


def conninfo_of(conninfo: str, node: str) -> str:
    """The same login on a node."""
    host, _, port = node.rpartition(":")
    params = conninfo_to_dict(conninfo)
    params.pop("hostaddr", None)  # of the coordinator; it would count more than the name
    return make_conninfo("", **{**params, "host": host, "port": port, "connect_timeout": CONNECT_TIMEOUT_S})


def sizes_on_nodes(
    connection: Connection[Any], conninfo: str, nodes: Collection[str], tables: Sequence[TableSize]
) -> list[TableSize]:
    """Where tenants are to be asked for, with sizes by their nodes. `nodes` are those that can be reached."""
    placed = places(connection, [table.customer_id for table in tables])
    pages: dict[CustomerId, int] = {}
    unreached = set[str]()
    for node in sorted({place.node for place in placed.values()} & set(nodes)):
        own = {customer: place for customer, place in placed.items() if place.node == node}
        try:
            with connect_checked(conninfo_of(conninfo, node)) as of_node:
                pages |= {customer: size for customer, size, _ in _shards(of_node, own)}
        except (psycopg.OperationalError, TooMightyError) as error:
            tell_unreachable(node, error)
            unreached.add(node)
    return [
        TableSize(table.customer_id, pages.get(table.customer_id, table.pages), _whole(placed, table, nodes, unreached))
        for table in tables
    ]


def _whole(
    placed: Mapping[CustomerId, Place], table: TableSize, nodes: Collection[str], unreached: Collection[str]
) -> Place:
    place = placed.get(table.customer_id)
    if place is None:
        return table.place
    is_asked = place.node in nodes and place.node not in unreached
    return Place(place.node if is_asked else "")


def large_shards(
    connection: Connection[Any], own: Mapping[CustomerId, Place], pages: int
) -> list[tuple[CustomerId, int, int]]:
    """The tenants of a node whose devices take more pages than that, with these and the file they are in."""
    return [one for one in _shards(connection, own) if one[1] > pages]


def _shards(connection: Connection[Any], own: Mapping[CustomerId, Place]) -> list[tuple[CustomerId, int, int]]:
    # A tenant that lacks the table fails when it is read, alone.
    whole = {customer: place for customer, place in own.items() if "devices" in dict(place.shards)}
    asked = {
        "customers": list(whole),
        "shards": [named_on(f"{quoted_schema(one)}.devices", one, place) for one, place in whole.items()],
        "page_bytes": PAGE_BYTES,
    }
    rows = connection.execute(_SHARDS, asked).fetchall()
    return [(CustomerId(customer), size, filenode) for customer, size, filenode in rows]


def contact_bounds(connection: Connection[Any], customer_id: CustomerId, place: Place) -> tuple[int, ...]:
    """As the node's statistics have them."""
    connection.execute("SET citus.override_table_visibility = off")
    shard = f"devices_{dict(place.shards)['devices']}"
    found = connection.execute(_CONTACT_BOUNDS, {"schema": schema_name(customer_id), "shard": shard}).fetchone()
    return tuple(found[0] or ()) if found else ()


def still_here(connection: Connection[Any], of_node: Sequence[Place]) -> list[Place]:
    """Those whose shards are this node's at the moment that the transaction reads: one that was just moved away leaves
    an old copy behind for a while."""
    asked = [shard for place in of_node for _, shard in place.shards]
    found = {shard for (shard,) in connection.execute(_STILL_HERE, (asked,))}
    return [place for place in of_node if found.issuperset(shard for _, shard in place.shards)]


def named_on(text: str, customer_id: CustomerId, place: Place) -> str:
    """A query of one tenant with the names that its tables have where it is asked. One that is missing is so there."""
    if not place.shards:
        return text
    shards = dict(place.shards)
    schema = quoted_schema(customer_id)

    def on_node(found: re.Match[str]) -> str:
        table = found[1]
        return f"{schema}.{table}_{shards[table]}" if table in shards else found[0]

    return re.sub(re.escape(schema) + r"\.(\w+)", on_node, text)


def tell_unreachable(node: str, error: Exception) -> None:
    """Once for each node: its tenants are read through the coordinator, which is slower and no less true."""
    if node not in _said:
        _said.add(node)
        log.warning(
            "node can't be read directly, so its tenants are read through the coordinator",
            node=node,
            error=" ".join(str(error).split())[:300],
        )
