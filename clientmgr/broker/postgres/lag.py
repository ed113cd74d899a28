"""How far each group is behind, for the command line and the metrics. It only reads, so any role will do."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row, tuple_row

from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.message_metrics import forget_lag, set_lag

QUERIES = named_queries("broker/queries/lag.sql")
PAUSES = named_queries("broker/queries/pauses.sql")

COUNT_AT_MOST = 1_000_000
"""Per partition: counting stops here, and the figure then means "at least so many"."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Where a group stands in one partition."""

    topic: str
    group_id: str
    partition_id: int
    next_offset: int
    messages: int
    published_at: datetime | None
    """Of the oldest message not yet read."""
    attempts: int
    retry_at: datetime | None


@dataclass(frozen=True, slots=True)
class Pause:
    """Somebody has paused a subscription."""

    group_id: str
    reason: str
    paused_by: str
    paused_at: datetime


@dataclass(frozen=True, slots=True)
class SubscriptionLag:
    """Where a group stands as a whole."""

    topic: str
    subscription: str
    messages: int
    oldest_unread: datetime | None
    waiting: int
    """Retries whose time has not come."""
    dead: int
    """Dead letters that were not replayed."""
    partitions: Sequence[PartitionLag]
    pause: Pause | None = None

    def seconds(self, now: datetime | None = None) -> float:
        """Age of the oldest message not yet read."""
        if self.oldest_unread is None:
            return 0.0
        return max(0.0, ((now or datetime.now(UTC)) - self.oldest_unread).total_seconds())


async def subscription_lag(
    connection: AsyncConnection[Any],
    *,
    topic: str | None = None,
    subscription: str | None = None,
    at_most: int = COUNT_AT_MOST,
) -> list[SubscriptionLag]:
    """Every group, or those of one topic or name, in order. A deleted group that left dead letters is listed too."""
    chosen = {"topic": topic, "subscription": subscription, "at_most": at_most}
    async with connection.cursor(row_factory=class_row(PartitionLag)) as cursor:
        await cursor.execute(QUERIES["partition_lag"], chosen)
        partitions = await cursor.fetchall()
    async with connection.cursor(row_factory=tuple_row) as counts:
        await counts.execute(QUERIES["set_aside"], chosen)
        set_aside = {(row[0], row[1]): (int(row[2]), int(row[3])) for row in await counts.fetchall()}
    async with connection.cursor(row_factory=class_row(Pause)) as paused:
        await paused.execute(PAUSES["all"], {"subscription": subscription})
        pauses = {one.group_id: one for one in await paused.fetchall()}
    by_group: dict[tuple[str, str], list[PartitionLag]] = {key: [] for key in set_aside}
    for partition in partitions:
        by_group.setdefault((partition.topic, partition.group_id), []).append(partition)
    return [
        _total(*key, by_group[key], *set_aside.get(key, (0, 0)), pause=pauses.get(key[1])) for key in sorted(by_group)
    ]


def _total(
    topic: str, subscription: str, partitions: Sequence[PartitionLag], waiting: int, dead: int, *, pause: Pause | None
) -> SubscriptionLag:
    return SubscriptionLag(
        topic,
        subscription,
        sum(partition.messages for partition in partitions),
        min((partition.published_at for partition in partitions if partition.published_at is not None), default=None),
        waiting,
        dead,
        partitions,
        pause,
    )


class LagExport:
    """Sets the gauges of all subscriptions. Call it regularly, from one process only."""

    def __init__(self) -> None:
        self._exported: set[tuple[str, str]] = set()

    async def __call__(self, connection: AsyncConnection[Any]) -> None:
        lags = await subscription_lag(connection)
        for lag in lags:
            set_lag(
                lag.topic,
                lag.subscription,
                messages=lag.messages,
                seconds=lag.seconds(),
                waiting=lag.waiting,
                dead=lag.dead,
                paused=lag.pause is not None,
            )
        current = {(lag.topic, lag.subscription) for lag in lags}
        for gone in self._exported - current:
            forget_lag(*gone)
        self._exported = current
