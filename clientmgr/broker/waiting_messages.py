"""Messages that were put aside until their time comes, on either transport: what they wait for may come earlier."""

from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from clientmgr.base.sqlfiles import named_queries

QUERIES = named_queries("broker/queries/waiting.sql")


def make_due(connection: Connection[Any], tenants: Sequence[str]) -> int:
    """Have what waits for these tenants delivered with the next look, within a second. Returns how many."""
    wanted = {"tenants": list(tenants)}
    return sum(connection.execute(QUERIES[name], wanted).rowcount for name in ("make_due", "make_due_on_pubsub"))
