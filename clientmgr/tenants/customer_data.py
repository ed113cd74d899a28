"""What belongs to a customer outside of its schema: the one list of what else a deletion removes.

Whoever keeps something by customer adds a line here, and no more: `clientmgr migrate` lets clientmgr_ddl delete from
what is named here. A table that does not exist (yet) is passed over.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal, LiteralString

from psycopg import Connection, sql

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import TransientError
from clientmgr.base.settings import Settings
from clientmgr.tenants.cache_invalidation import ANSWER_WITHIN_S, ENTRY_KEY


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table that has a column with the customer's id."""

    table: str
    column: str = "customer_id"
    type: Literal["bigint", "text"] = "bigint"
    schema: str = "clientmgr"
    are_messages: bool = False
    """Whether a payload names the customer where the column is empty: many publish without an ordering key."""


ROWS: Final = (
    # Messages that wait or died carry what devices said: tokens, hardware ids, contacts.
    Rows("dead_letter_queue", "host_id", "text", are_messages=True),
    Rows("delayed_message_t", "host_id", "text", are_messages=True),
    Rows("pubsub_delayed", "host_id", "text", are_messages=True),
    Rows("flippers"),
    Rows("orphan_exclusions"),
    Rows("dashboard_tenant_metrics"),
    Rows("dashboard_tenant_metrics_history"),
    Rows("dashboard_tenant_metrics_staged"),
    Rows("orphan_candidates"),
    Rows("orphan_candidates_staged"),
    Rows("orphan_searches"),
    Rows("orphan_deletion_results"),
    Rows("deleted_contacts"),
    Rows("deleted_contacts_staged"),
    Rows("contact_deletion_watermarks"),
    Rows("batch_failures"),
)

# As escaped text: any bytes are some, while not all of them are JSON, or even UTF-8.
NAMED_IN_PAYLOAD: Final = (
    """coalesce(nullif({}, ''), substring(encode(b.payload, 'escape') FROM '"customerId"\\s*:\\s*"?([0-9]+)'))"""
)

CACHED_KEYS: Final = (ENTRY_KEY,)
"""Redis keys, with the customer's id in the place of `{customer_id}`."""


def remove_rows(connection: Connection[Any], customer_id: CustomerId) -> dict[str, int]:
    """Delete the customer's rows in the caller's transaction. Returns how many went, by table, where there were any."""
    removed = {}
    for rows in _existing(connection):
        statement = _filled("DELETE FROM {table} AS b WHERE {customer} = %s::{type}", rows)
        if count := connection.execute(statement, (customer_id,)).rowcount:
            removed[rows.table] = count
    return removed


def deleted_customers_with_rows(connection: Connection[Any]) -> set[CustomerId]:
    """Customers that are deleted and have rows somewhere: written late by somebody who did not know.

    While a deletion is still to come or under way, the rows are its own to remove.
    """
    found: set[CustomerId] = set()
    for rows in _existing(connection):
        statement = _filled(
            "SELECT w.customer_id FROM clientmgr.tenant_wishes AS w WHERE w.wish = 'deleted'"
            " AND w.customer_id::{type} IN (SELECT {customer} FROM {table} AS b)"
            " AND NOT EXISTS (SELECT FROM clientmgr.tenants AS t"
            " WHERE t.customer_id = w.customer_id AND t.status <> 'deleted')",
            rows,
        )
        found |= {CustomerId(row[0]) for row in connection.execute(statement)}
    return found


def ensure_grants(connection: Connection[Any]) -> None:
    """Let clientmgr_ddl, which deletes accounts, delete from all of these tables. For the owner, after migrations."""
    for rows in _existing(connection):
        name = f"{rows.schema}.{rows.table}"
        (granted,) = connection.execute(
            "SELECT has_table_privilege('clientmgr_ddl', %(table)s, 'SELECT')"
            " AND has_table_privilege('clientmgr_ddl', %(table)s, 'DELETE')",
            {"table": name},
        ).fetchall()
        if not granted[0]:
            connection.execute(_filled("GRANT SELECT, DELETE ON {table} TO clientmgr_ddl", rows))


def _existing(connection: Connection[Any]) -> list[Rows]:
    names = [f"{rows.schema}.{rows.table}" for rows in ROWS]
    found = connection.execute("SELECT n FROM unnest(%s::text[]) AS n WHERE to_regclass(n) IS NOT NULL", (names,))
    existing = {row[0] for row in found}
    return [rows for rows, name in zip(ROWS, names, strict=True) if name in existing]


def _filled(statement: LiteralString, rows: Rows) -> sql.Composed:
    column = sql.Identifier("b", rows.column)
    return sql.SQL(statement).format(
        table=sql.Identifier(rows.schema, rows.table),
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
