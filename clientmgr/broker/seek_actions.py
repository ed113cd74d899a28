"""Where a subscription can be moved to in its topic, and moving it with a row in the audit log."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from clientmgr.audit.log import PLATFORM, AuditEntry, AuditLogger
from clientmgr.broker.postgres.seeking import QUERIES, SeekReport, seek_group
from clientmgr.broker.postgres.topic_administration import find_subscription


@dataclass(frozen=True, slots=True)
class Place:
    """An offset or a time: one of the two."""

    to_offset: int | None = None
    to_time: datetime | None = None


async def start_of(connection: AsyncConnection[Any], subscription: str) -> Place:
    """The first offset from which the topic still keeps everything that the subscription has read."""
    found = await find_subscription(connection, subscription)
    first, _, end = await _row(connection, "bounds", topic_id=found.topic_id)
    standing = {"group_id": subscription, "topic_id": found.topic_id}
    async with connection.cursor(row_factory=tuple_row) as cursor:
        stood = max(offset for _, offset in await (await cursor.execute(QUERIES["partitions"], standing)).fetchall())
    if first is None or first >= stood:
        return Place(to_offset=end if first is None else first)
    (complete,) = await _row(connection, "complete_from", topic_id=found.topic_id, to_offset=first, before_offset=stood)
    return Place(to_offset=complete)


async def end_of(connection: AsyncConnection[Any], subscription: str) -> Place:
    """Behind all that was published until now."""
    found = await find_subscription(connection, subscription)
    _, _, end = await _row(connection, "bounds", topic_id=found.topic_id)
    return Place(to_offset=end)


async def preview(connection: AsyncConnection[Any], subscription: str, place: Place) -> SeekReport:
    """What `seek` would do."""
    return await seek_group(connection, subscription, to_offset=place.to_offset, to_time=place.to_time, dry_run=True)


async def seek(
    connection: AsyncConnection[Any], subscription: str, place: Place, audit: AuditLogger, *, actor: str
) -> SeekReport:
    """Move the subscription and record it, in one transaction."""
    async with connection.transaction():
        report = await seek_group(connection, subscription, to_offset=place.to_offset, to_time=place.to_time)
        details: dict[str, str | int] = {
            "topic": report.topic,
            "subscription": subscription,
            "to_offset": report.partitions[0].to_offset,
            "again": report.again,
            "skipped": report.skipped,
        }
        if place.to_time is not None:
            details["to_time"] = place.to_time.isoformat()
        moved = report.again + report.skipped
        entry = AuditEntry(PLATFORM, actor, "subscription.seek", "done", rows_affected=moved, details=details)
        await audit.append_async(connection, [entry])
    return report


async def _row(connection: AsyncConnection[Any], query: str, **parameters: Any) -> tuple[Any, ...]:
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(QUERIES[query], parameters)
        return await anext(cursor)
