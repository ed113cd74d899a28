"""Moving a group to another place in its topic, by offset or by time, forward or back.

Back: everything from there on is read again, so what the group had set aside of it is forgotten. Forward: what lies
between is never read; what was set aside before stays, for it was not skipped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from clientmgr.base.errors import InvalidInputError, PermanentError, TransientError
from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.postgres.claim import Subscription
from clientmgr.broker.postgres.topic_administration import QUERIES as TOPIC_QUERIES
from clientmgr.broker.postgres.topic_administration import find_subscription

QUERIES = named_queries("broker/queries/seeking.sql")

WAIT_FOR_CONSUMERS_MS = 5_000
"""How long to wait for batches in hand. Consumers take no new ones meanwhile."""


class GroupBusyError(TransientError):
    """A consumer has a batch in hand that lasts."""

    def __init__(self, group_id: str) -> None:
        super().__init__(
            f"subscription {group_id}: a consumer has had a batch in hand for {WAIT_FOR_CONSUMERS_MS / 1000:.0f} s;"
            " nothing was moved. Try again, or stop its consumers first"
        )


@dataclass(frozen=True, slots=True)
class PartitionSeek:
    """One partition of the group: where it stood, and where it stands now. Both are the next offset to be read."""

    partition_id: int
    from_offset: int
    to_offset: int


@dataclass(frozen=True, slots=True)
class SeekReport:
    """What a seek did, or would do."""

    topic: str
    partitions: Sequence[PartitionSeek]
    again: int
    """Messages that were read and come again."""
    skipped: int
    """Messages that were not read yet and never will be."""


async def seek_group(
    connection: AsyncConnection[Any],
    group_id: str,
    *,
    to_offset: int | None = None,
    to_time: datetime | None = None,
    dry_run: bool = False,
) -> SeekReport:
    """Have the group go on at `to_offset`, or at the first message published at `to_time` or later.

    An offset inside a transaction's messages means the first of them. Refuses to go where messages are trimmed already,
    and while a batch is in hand for long. Opens its own transaction.
    """
    if (to_offset is None) == (to_time is None):
        raise InvalidInputError("to_offset, to_time", "one of the two", (to_offset, to_time))
    if to_time is not None and to_time.tzinfo is None:
        raise InvalidInputError("to_time", "a time with its time zone", to_time)
    async with connection.transaction():
        await connection.execute(TOPIC_QUERIES["lock_group"], {"group_id": group_id})
        subscription = await find_subscription(connection, group_id)
        if await _rows(connection, "of_the_gateway", group_id=group_id):
            raise PermanentError(f"subscription {group_id} is the Pub/Sub gateway's: call its Seek instead")
        # Retention waits, or what is found here could be gone when the group gets there.
        await connection.execute(TOPIC_QUERIES["lock_topic_layout"], {"topic": subscription.topic})
        standing = await _partitions(connection, subscription, lock=not dry_run)
        target = await _target(connection, subscription, to_offset, to_time)
        await _require_kept(connection, subscription, target, max(offset for _, offset in standing))
        place = {"group_id": group_id, "topic_id": subscription.topic_id, "to_offset": target}
        [(again, skipped)] = await _rows(
            connection,
            "count_between",
            **place,
            partitions=[partition for partition, _ in standing],
            offsets=[offset for _, offset in standing],
        )
        if not dry_run:
            for step in (
                "forget_held",
                "forget_empty_queues",
                "forget_waiting",
                "forget_retries_in_log",
                "move",
                "wake",
            ):
                await connection.execute(QUERIES[step], place)
    moves = [PartitionSeek(partition, offset, target) for partition, offset in standing]
    return SeekReport(subscription.topic, moves, again, skipped)


async def _partitions(
    connection: AsyncConnection[Any], subscription: Subscription, *, lock: bool
) -> list[tuple[int, int]]:
    """Where the group's partitions stand. Locked: nobody has a batch of them in hand until our transaction ends."""
    place = {"group_id": subscription.group_id, "topic_id": subscription.topic_id}
    if not lock:
        return [(row[0], row[1]) for row in await _rows(connection, "partitions", **place)]
    await connection.execute(f"SET LOCAL lock_timeout = {WAIT_FOR_CONSUMERS_MS}".encode())
    try:
        return [(row[0], row[1]) for row in await _rows(connection, "lock_partitions", **place)]
    except psycopg.errors.LockNotAvailable:
        raise GroupBusyError(subscription.group_id) from None


async def _target(
    connection: AsyncConnection[Any], subscription: Subscription, to_offset: int | None, to_time: datetime | None
) -> int:
    topic_id = subscription.topic_id
    [(oldest, oldest_at, end)] = await _rows(connection, "bounds", topic_id=topic_id)
    first = end if oldest is None else oldest
    if to_time is not None:
        if first > 1 and (oldest_at is None or to_time < oldest_at) and to_time < await _now(connection):
            kept = f"from offset {oldest}, published {oldest_at:%Y-%m-%d %H:%M:%S%z}, on" if oldest else "no message"
            raise InvalidInputError("to_time", f"a time that topic {subscription.topic} still keeps ({kept})", to_time)
        to_offset = await first_at(connection, topic_id, to_time, first, end)
    if to_offset is None or not first <= to_offset <= end:
        raise InvalidInputError(
            "to_offset", f"{first} to {end}, which is what topic {subscription.topic} keeps", to_offset
        )
    [(start,)] = await _rows(connection, "group_start", topic_id=topic_id, at=to_offset)
    return int(start)


async def first_at(connection: AsyncConnection[Any], topic_id: int, time: datetime, first: int, end: int) -> int:
    """The offset of the first message published at `time` or later. Later offsets are never older: halving finds it."""
    low, high = first, end
    while low < high:
        middle = (low + high) // 2
        found = await _rows(connection, "published_from", topic_id=topic_id, from_offset=middle)
        if found and found[0][1] < time:
            low = found[0][0] + 1
        else:
            high = middle
    return low


async def _require_kept(connection: AsyncConnection[Any], subscription: Subscription, target: int, stood: int) -> None:
    if target >= stood:
        return
    [(complete_from,)] = await _rows(
        connection, "complete_from", topic_id=subscription.topic_id, to_offset=target, before_offset=stood
    )
    if complete_from > target:
        raise InvalidInputError(
            "to_offset",
            f"{complete_from} or later: of what topic {subscription.topic} had before, some is trimmed already",
            target,
        )


async def _now(connection: AsyncConnection[Any]) -> datetime:
    cursor = await connection.cursor(row_factory=tuple_row).execute("SELECT clock_timestamp()")
    now: datetime = (await cursor.fetchall())[0][0]
    return now


async def _rows(connection: AsyncConnection[Any], query: str, **parameters: Any) -> list[tuple[Any, ...]]:
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(QUERIES[query], parameters)
        return await cursor.fetchall()
