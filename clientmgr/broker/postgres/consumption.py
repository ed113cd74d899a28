"""What the loops of one `consume` call share: subscription, handler, options, counts, and the verdict on errors."""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus

from clientmgr.base.errors import ErrorKind, classify
from clientmgr.base.logs import get_logger
from clientmgr.broker.interface import ConsumerOptions, ConsumeStats, Handler, Message
from clientmgr.broker.message_metrics import PUBLISHED, SubscriptionMetrics
from clientmgr.broker.postgres.batch import PostgresBatch
from clientmgr.broker.postgres.claim import Claim, Subscription
from clientmgr.broker.postgres.settlement import Settlement
from clientmgr.broker.postgres.wakeups import Wakeups

log = get_logger(__name__)

FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.1, 15.0
LONGEST_RECONNECT_PAUSE_S = 2.0


class TransactionEndedError(RuntimeError):
    """A handler's mistake that would cost exactly-once. It ends `consume`: no retry and no dead letter mends it."""


@dataclass(frozen=True, slots=True)
class Handled:
    """What a handler that did not fail leaves to be recorded."""

    settlement: Settlement
    publications: Mapping[str, Sequence[Message]]


@dataclass(frozen=True)
class Consumption:
    """One `consume` call."""

    subscription: Subscription
    handler: Handler
    options: ConsumerOptions
    stop: asyncio.Event
    burst: bool
    connect: Callable[[], Awaitable[AsyncConnection[Any]]]
    wakeups: Wakeups
    metrics: SubscriptionMetrics
    max_message_bytes: int
    cut_off_ms: int | None
    stats: ConsumeStats = field(default_factory=ConsumeStats)
    in_hand: set[int] = field(default_factory=set)
    """The partitions that a loop of this call has claimed. It looks at them again by itself."""
    awake: set[object] = field(default_factory=set)
    """The loops of this call that are looking for messages or at some; the others sleep, or have no connection."""

    async def handle(self, connection: AsyncConnection[Any], claim: Claim) -> Handled:
        """Call the handler inside the connection's transaction and check what it answers."""
        messages = claim.messages
        batch = PostgresBatch(
            self.subscription.group_id, messages, connection, max_message_bytes=self.max_message_bytes
        )
        outcomes = await self.handler(batch)
        if connection.info.transaction_status is TransactionStatus.IDLE:
            raise TransactionEndedError("the handler ended the batch's transaction; it may only use savepoints")
        return Handled(Settlement.of(claim, outcomes), batch.publications)

    def can_recover(self, error: Exception, claim: Claim) -> bool:
        """Whether the batch is to come again as it is, or is to be taken apart to find what can't be handled."""
        kind = classify(error)
        self.metrics.failed(kind.value)
        log.warning(
            "batch failed",
            topic=self.subscription.topic,
            subscription=self.subscription.group_id,
            partition=claim.partition_id,
            first_offset=claim.first_offset,
            messages=len(claim.records),
            failures=claim.failures + 1,
            kind=kind.value,
            error_type=type(error).__name__,
            error=str(error),
            exc_info=error if kind is ErrorKind.UNFORESEEN else None,
        )
        if kind is ErrorKind.UNFORESEEN:
            return claim.failures + 1 < self.options.max_attempts
        return kind is ErrorKind.TRANSIENT

    def count(self, handled: Handled, started: float) -> None:
        """Note what has been committed."""
        settlement = handled.settlement
        done, retried, dead = settlement.done, len(settlement.retries), len(settlement.deaths)
        self.stats.done += done
        self.stats.retried += retried
        self.stats.dead += dead
        self.stats.batches += 1
        self.metrics.settled(done=done, retried=retried, dead=dead, seconds=time.monotonic() - started)
        for topic, published in handled.publications.items():
            PUBLISHED.labels(topic).inc(len(published))


def backoff_s(failures: int) -> float:
    """Exponential with full jitter: those who failed together do not come back together."""
    return random.uniform(0.0, min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(failures, 30)))  # noqa: S311


def reconnect_pause_s(failures: int) -> float:
    """Longer each time, but a server that restarts is not kept waiting for long."""
    return min(LONGEST_RECONNECT_PAUSE_S, backoff_s(failures))


async def wait_for_stop(stop: asyncio.Event, seconds: float) -> None:
    """Sleep, but not through the order to stop."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
