"""Appends messages that were published for later. Consumers do it for their own topic; this is for all topics."""

from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from clientmgr.base.sqlfiles import named_queries

QUERIES = named_queries("broker/queries/due_messages.sql")
MOST_AT_A_TIME = 500


async def append_due_messages(connection: AsyncConnection[Any]) -> float | None:
    """Append what is due, of all topics, each in a transaction of its own. In autocommit mode.

    Returns the seconds until the next is due, less than 0 where some are left, None where none waits.
    """
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(QUERIES["next_due"])
        (next_due_s,) = await anext(cursor)
        if next_due_s is None or next_due_s > 0:
            return None if next_due_s is None else float(next_due_s)
        await cursor.execute(QUERIES["due_topics"])
        for (topic_id,) in await cursor.fetchall():
            await cursor.execute(QUERIES["append_due"], {"topic_id": topic_id, "most": MOST_AT_A_TIME})
        await cursor.execute(QUERIES["next_due"])
        (next_due_s,) = await anext(cursor)
        return None if next_due_s is None else float(next_due_s)
