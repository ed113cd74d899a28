"""Creating, resizing and removing topics and the groups that read them. All of it is rare and runs in its own
transaction.
"""

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from clientmgr.base.errors import InvalidInputError, PermanentError, TransientError
from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.message_checks import check_name
from clientmgr.broker.postgres.claim import Subscription
from clientmgr.broker.postgres.publish import UnknownTopicError

QUERIES = named_queries("broker/queries/topics.sql")


class UnknownSubscriptionError(PermanentError):
    """No such subscription exists."""

    def __init__(self, subscription: str) -> None:
        super().__init__(f"subscription {subscription} does not exist: `clientmgr topics` lists those that do")


class TopicNotDrainedError(TransientError):
    """The number of partitions can't change while a group has messages of the topic to read."""

    def __init__(self, topic: str, groups: Sequence[str]) -> None:
        super().__init__(f"topic {topic} can't be resized yet: {', '.join(groups)} must first read it to its end")


async def ensure_topic(connection: AsyncConnection[Any], topic: str, *, total_partitions: int) -> None:
    check_name("topic", topic)
    # Look first: an INSERT that conflicts uses up an id, and every daemon comes through here when it starts.
    if not await _rows(connection, "topic_exists", topic=topic):
        await connection.execute(QUERIES["create_topic"], {"topic": topic, "total_partitions": total_partitions})


async def ensure_group(connection: AsyncConnection[Any], group_id: str, topic: str, *, from_start: bool) -> None:
    """Register a reader of `topic`, from the oldest message kept or from the end. A known one keeps its place."""
    check_name("subscription", group_id)
    async with connection.transaction():
        await connection.execute(QUERIES["lock_group"], {"group_id": group_id})
        known = await _rows(connection, "group_topic", group_id=group_id)
        if known:
            if known[0][0] != topic:
                raise PermanentError(f"subscription {group_id} reads topic {known[0][0]}, not {topic}")
            return
        if not await _rows(connection, "lock_topic_layout", topic=topic):
            raise UnknownTopicError(topic)
        await connection.execute(
            QUERIES["create_group"], {"group_id": group_id, "topic": topic, "from_start": from_start}
        )


async def drop_group(connection: AsyncConnection[Any], group_id: str) -> None:
    """Delete a group, its place in the topic, its waiting retries and what it holds. Its dead letters stay."""
    async with connection.transaction():
        await connection.execute(QUERIES["lock_group"], {"group_id": group_id})
        for step in ("drop_group", "drop_queues"):
            await connection.execute(QUERIES[step], {"group_id": group_id})


async def find_subscription(connection: AsyncConnection[Any], group_id: str) -> Subscription:
    rows = await _rows(connection, "group_topic", group_id=group_id)
    if not rows:
        raise UnknownSubscriptionError(group_id)
    topic, topic_id = rows[0]
    return Subscription(group_id, topic, topic_id)


async def require_topics(connection: AsyncConnection[Any], topics: Sequence[str]) -> None:
    """Raise for the first topic that does not exist. Locks nothing."""
    missing = await _rows(connection, "missing_topics", topics=list(topics))
    if missing:
        raise UnknownTopicError(missing[0][0])


async def resize_topic(connection: AsyncConnection[Any], topic: str, total_partitions: int) -> None:
    """Change the number of partitions, or refuse while any group has messages of the topic left to read.

    Publishers wait meanwhile: a tenant's messages must not lie in two partitions that are read at different speeds.
    """
    if not 1 <= total_partitions <= 1024:
        raise InvalidInputError("total_partitions", "1 to 1024", total_partitions)
    async with connection.transaction():
        if not await _rows(connection, "lock_topic_layout", topic=topic):
            raise UnknownTopicError(topic)
        topic_id, next_offset, current = (await _rows(connection, "lock_counter", topic=topic))[0]
        if current == total_partitions:
            return
        try:
            # Don't wait for a consumer with a batch in hand: it may be waiting for the counter that is locked here.
            await connection.execute(QUERIES["lock_offsets"], {"topic_id": topic_id})
        except psycopg.errors.LockNotAvailable:
            raise TopicNotDrainedError(topic, ["a consumer that has a batch in hand"]) from None
        behind = await _rows(connection, "groups_behind", topic_id=topic_id)
        if behind:
            raise TopicNotDrainedError(topic, [group for (group,) in behind])
        new_layout = {"topic_id": topic_id, "total_partitions": total_partitions, "next_offset": next_offset}
        for step in ("resize_counter", "move_rows", "move_queues", "move_offsets"):
            await connection.execute(QUERIES[step], new_layout)


async def _rows(connection: AsyncConnection[Any], query: str, **parameters: Any) -> list[tuple[Any, ...]]:
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(QUERIES[query], parameters)
        return await cursor.fetchall()
