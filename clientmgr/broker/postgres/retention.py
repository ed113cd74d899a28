"""Removes old messages that every group has passed from the log. Safe to run at any time, by anyone."""

from datetime import timedelta
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from clientmgr.base.logs import get_logger
from clientmgr.base.sqlfiles import named_queries

log = get_logger(__name__)

QUERIES = named_queries("broker/queries/retention.sql")

ROWS_A_TRANSACTION = 5000


async def trim(
    connection: AsyncConnection[Any],
    *,
    retention_hours: float,
    topic: str | None = None,
    only_read: bool = False,
    rows_a_transaction: int = ROWS_A_TRANSACTION,
) -> int:
    """Delete old messages that no group needs, of one topic or of all. Returns how many.

    Deletes in small transactions of its own; the connection must not be inside one. A topic without any group keeps
    its messages for the same time, or with `only_read` for longer: it is left out.
    """
    deleted = 0
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(QUERIES["topics"], {"topic": topic, "only_read": only_read})
        topics = await cursor.fetchall()
        for topic_id, name, total_partitions in topics:
            before = deleted
            for partition_id in range(total_partitions):
                last_offset: int | None = 0
                while last_offset is not None:
                    async with connection.transaction():
                        await cursor.execute(QUERIES["lock_topic_layout"], {"topic_id": topic_id})
                        await cursor.execute(
                            QUERIES["trim_partition"],
                            {
                                "topic_id": topic_id,
                                "partition_id": partition_id,
                                "after_offset": last_offset,
                                "keep": timedelta(hours=retention_hours),
                                "most": rows_a_transaction,
                            },
                        )
                        rows, last_offset = await anext(cursor)
                    deleted += rows
            if deleted > before:
                log.info("log trimmed", topic=name, deleted=deleted - before)
    return deleted


async def forget_keys(connection: AsyncConnection[Any], *, retention_hours: float) -> int:
    """Forget dedup keys that are older than the log keeps messages. Returns how many."""
    forgotten = 0
    parameters = {"keep": timedelta(hours=retention_hours), "most": ROWS_A_TRANSACTION}
    while (count := (await connection.execute(QUERIES["forget_keys"], parameters)).rowcount) > 0:
        forgotten += count
    return forgotten
