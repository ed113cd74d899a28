"""How much the system did in the last 24 hours: a sample a minute, and what a chart shows of them.

The process that does the maintenance takes them. They are of the PostgreSQL log: messages on Google Pub/Sub itself are
not among them.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from msgspec import Struct
from psycopg import AsyncConnection, Connection
from psycopg.rows import class_row

from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.error_topics import ERROR_TOPICS
from clientmgr.broker.postgres.lag import subscription_lag
from clientmgr.contracts import topics

_QUERIES = named_queries("operations/queries/samples.sql")

SAMPLE_EVERY_S: Final = 60.0
COUNT_AT_MOST: Final = 10_000
"""Unread messages of a partition."""
MOST_POINTS: Final = 96
_WIDTHS_S: Final = (60, 120, 300, 600, 900)
_MISSED_AFTER: Final = timedelta(minutes=3)
"""Without a sample for so long, nobody knows how the growth between two was spread."""


class Sample(Struct, frozen=True):
    """Totals since ever, and the state of a moment."""

    at: datetime
    events: int
    sends: int
    errors: int
    unread: int
    oldest_unread_s: float


class TrendPoint(Struct, frozen=True, rename="camel"):
    """A few minutes of the last day. Null: no samples were taken then."""

    at: datetime
    events_per_minute: float | None
    errors_per_minute: float | None
    sends_per_minute: float | None
    oldest_unread_s: float | None
    """The most that a subscription was behind."""


async def take_sample(connection: AsyncConnection[Any]) -> None:
    """Of this minute, unless somebody has. What is older than a day goes."""
    lags = await subscription_lag(connection, at_most=COUNT_AT_MOST)
    wanted = {
        "events": topics.WRITER,
        "sends": topics.PROVIDER_TOPIC,
        "errors": list(ERROR_TOPICS),
        "unread": sum(lag.messages for lag in lags),
        "oldest_unread_s": max((lag.seconds() for lag in lags), default=0.0),
    }
    await connection.execute(_QUERIES["take"], wanted)
    await connection.execute(_QUERIES["forget"])


def last_day(connection: Connection[Any]) -> list[Sample]:
    with connection.cursor(row_factory=class_row(Sample)) as cursor:
        return cursor.execute(_QUERIES["last_day"]).fetchall()


def trend(samples: Sequence[Sample], now: datetime) -> list[TrendPoint]:
    """As few points as a chart can show, the oldest first, all of the same length. Pure."""
    if len(samples) < 2:
        return []
    span_s = (now - samples[0].at).total_seconds()
    width = next((one for one in _WIDTHS_S if span_s / one <= MOST_POINTS), _WIDTHS_S[-1])
    first, last = (int(at.timestamp()) // width for at in (samples[0].at, now))
    grown: dict[int, list[tuple[Sample, Sample]]] = {}
    for before, after in pairwise(samples):
        if after.at - before.at <= _MISSED_AFTER:
            grown.setdefault(int(after.at.timestamp()) // width, []).append((before, after))
    return [
        _point(datetime.fromtimestamp(place * width, UTC), grown.get(place, [])) for place in range(first, last + 1)
    ]


def _point(at: datetime, pairs: Sequence[tuple[Sample, Sample]]) -> TrendPoint:
    if not pairs:
        return TrendPoint(at, None, None, None, None)
    minutes = sum((after.at - before.at).total_seconds() for before, after in pairs) / 60

    def rate(total: Callable[[Sample], int]) -> float:
        # A topic that was deleted takes its total with it.
        return sum(max(total(after) - total(before), 0) for before, after in pairs) / minutes

    return TrendPoint(
        at,
        rate(lambda one: one.events),
        rate(lambda one: one.errors),
        rate(lambda one: one.sends),
        max(one.oldest_unread_s for _, one in pairs),
    )
