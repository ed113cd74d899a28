"""Customer data: what is kept of a customer outside of its schema, and goes when the account is deleted.

The rule: every table of the schema `clientmgr` with a column `customer_id bigint` is customer data, unless KEPT says
why it outlives the customer. Nobody registers a table. `clientmgr migrate` lets clientmgr_ddl delete from it.
"""

import graphlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, LiteralString

from psycopg import Connection, sql

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import MigrationError, TransientError
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.tenants.cache_invalidation import ANSWER_WITHIN_S, ENTRY_KEY

_QUERIES = named_queries("tenants/queries/customer_data.sql")

SCHEMA: Final = "clientmgr"

KEPT: Final[Mapping[str, str]] = {
    "tenants": "The registry: a deleted customer is known as deleted, and not as one that never was.",
    "tenant_wishes": "The newest request for a customer keeps an old activation from bringing it back.",
    "tenant_migrations": "The deletion forgets these itself, together with the schema that they are about.",
    "audit_log": "The proof that the deletion was asked for and done. Nobody may change it.",
    "audit_heads": "Where each customer's chain of audit rows ends.",
}
"""Tables with a customer_id that outlive the customer, and why."""

MESSAGES: Final = ("dead_letter_queue", "delayed_message_t", "held_message_t", "pubsub_delayed")
"""Messages that wait or are dead hold tokens, hardware ids, contacts. They name the customer in text."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table that has a column with the customer's id."""

    table: str
    column: str = "customer_id"
    type: Literal["bigint", "text"] = "bigint"
    are_messages: bool = False
    """Whether a payload names the customer where the column is empty: many publish without an ordering key."""


# As escaped text: any bytes are some, while not all of them are JSON, or even UTF-8.
NAMED_IN_PAYLOAD: Final = (
    """coalesce(nullif({}, ''), substring(encode(b.payload, 'escape') FROM '"customerId"\\s*:\\s*"?([0-9]+)'))"""
)

RECORD_OF_FAILURES: Final = "batch_failures"
"""Last of all: the writer of results writes it last too, and whoever takes locks in another order can deadlock."""

CACHED_KEYS: Final = (ENTRY_KEY,)
"""Redis keys, with the customer's id in the place of `{customer_id}`."""


def remove_rows(connection: Connection[Any], customer_id: CustomerId) -> dict[str, int]:
    """Delete the customer's rows in the caller's transaction. Returns how many went, by table, where there were any."""
    removed = {}
    for rows in tables(connection):
        statement = _filled("DELETE FROM {table} AS b WHERE {customer} = %s::{type}", rows)
        if count := connection.execute(statement, (customer_id,)).rowcount:
            removed[rows.table] = count
    return removed


def deleted_customers_with_rows(connection: Connection[Any]) -> set[CustomerId]:
    """Deleted customers that have rows somewhere: a process that did not know of the deletion wrote them late.

    Rows of a deletion that is still to come or under way do not count: it removes them itself.
    """
    by_table = [
        _filled(
            "SELECT w.customer_id FROM clientmgr.tenant_wishes AS w WHERE w.wish = 'deleted'"
            " AND w.customer_id::{type} IN (SELECT {customer} FROM {table} AS b)"
            " AND NOT EXISTS (SELECT FROM clientmgr.tenants AS t"
            " WHERE t.customer_id = w.customer_id AND t.status <> 'deleted')",
            rows,
        )
        for rows in tables(connection)
    ]
    return {CustomerId(row[0]) for row in connection.execute(sql.SQL(" UNION ").join(by_table))}


def ensure_grants(connection: Connection[Any]) -> None:
    """Let clientmgr_ddl, which deletes accounts, delete from all of these tables. For the owner, after migrations."""
    for rows in tables(connection):
        ((may_delete,),) = connection.execute(_QUERIES["may_delete"], {"table": f"{SCHEMA}.{rows.table}"}).fetchall()
        if not may_delete:
            connection.execute(_filled("GRANT SELECT, DELETE ON {table} TO clientmgr_ddl", rows))


def tables(connection: Connection[Any]) -> list[Rows]:
    """All tables with customer data, in the order in which they can be emptied."""
    found = connection.execute(_QUERIES["existing"], {"names": list(MESSAGES)})
    messages = [Rows(name, "host_id", "text", are_messages=True) for (name,) in found]
    references: dict[str, list[str]] = dict(connection.execute(_QUERIES["tables"]).fetchall())
    return messages + [Rows(name) for name in in_order_of_deletion(references) if name not in KEPT]


def in_order_of_deletion(references: Mapping[str, Sequence[str]]) -> Iterable[str]:
    """Whatever has a foreign key before what it points at. `references`: where each table's foreign keys point."""
    graph: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
    for table in sorted(references):
        graph.add(table)
        for target in references[table]:
            if target in references:
                graph.add(target, table)
    if RECORD_OF_FAILURES in references:
        graph.add(RECORD_OF_FAILURES, *(table for table in references if table != RECORD_OF_FAILURES))
    try:
        return list(graph.static_order())
    except graphlib.CycleError as error:
        circle = ", ".join(error.args[1])
        raise MigrationError(f"foreign keys go round in a circle, so no table can be emptied first: {circle}") from None


def _filled(statement: LiteralString, rows: Rows) -> sql.Composed:
    column = sql.Identifier("b", rows.column)
    return sql.SQL(statement).format(
        table=sql.Identifier(SCHEMA, rows.table),
        customer=sql.SQL(NAMED_IN_PAYLOAD).format(column) if rows.are_messages else column,
        type=sql.SQL(rows.type),
    )


def remove_cached(settings: Settings, customer_id: CustomerId) -> int:
    """Delete what Redis holds of the customer. A Redis that does not answer is an error: the deletion is not done."""
    if not settings.redis_url:
        return 0
    # It takes half a second to import, and most commands delete no customer.
    import redis

    client = redis.Redis.from_url(
        settings.redis_url, socket_timeout=ANSWER_WITHIN_S, socket_connect_timeout=ANSWER_WITHIN_S
    )
    try:
        return int(client.delete(*(key.format(customer_id=customer_id) for key in CACHED_KEYS)))
    except (redis.RedisError, OSError) as error:
        raise TransientError(f"what Redis holds of customer {customer_id} could not be removed: {error}") from error
    finally:
        client.close()
