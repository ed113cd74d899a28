"""What the loops of one `consume` call share: the subscription, the handler, the options and the account of it all."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from psycopg import AsyncConnection

from clientmgr.base.errors import ErrorKind
from clientmgr.broker.batch import TransactionBatch
from clientmgr.broker.interface import ConsumerOptions, Handler
from clientmgr.broker.message_metrics import PUBLISHED
from clientmgr.broker.postgres.claim import Claim, Record, Subscription
from clientmgr.broker.postgres.wakeups import Bell, Wakeups
from clientmgr.broker.settling import Handled, Ledger, call_handler, pause_after_failure_s

LONGEST_RECONNECT_PAUSE_S = 2.0


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
    ledger: Ledger
    max_message_bytes: int
    cut_off_ms: int | None
    lease_s: float
    in_hand: set[int] = field(default_factory=set)
    """The partitions that loops of this call have claimed. Each loop looks at its own again."""
    awake: set[object] = field(default_factory=set)
    """The loops of this call that look for messages or handle some; the others sleep or have no connection."""

    @property
    def bell(self) -> Bell:
        return self.wakeups.bell(self.subscription.topic_id, self.subscription.group_id)

    async def handle(self, connection: AsyncConnection[Any], claim: Claim) -> Handled[Record]:
        """Call the handler inside the connection's transaction and check what it answers."""
        batch = TransactionBatch(
            self.subscription.group_id, claim.messages, connection, max_message_bytes=self.max_message_bytes
        )
        return await call_handler(self.handler, batch, claim.records, timeout_s=self.options.handler_timeout_s)

    def judge(self, error: Exception, claim: Claim) -> ErrorKind:
        """Whether the messages come again as they are (transient), by themselves (unforeseen), or never (permanent)."""
        return self.ledger.judge(
            error,
            messages=len(claim.records),
            failures=claim.failures + 1,
            partition=claim.partition_id,
            first_offset=claim.first_offset,
        )

    def count(self, handled: Handled[Record], started: float) -> None:
        """Count what has been committed."""
        self.ledger.count(handled.settlement, started)
        for topic, published in handled.publications.items():
            PUBLISHED.labels(topic).inc(len(published))


def reconnect_pause_s(failures: int) -> float:
    """How long to wait for a connection. It grows, but a server that restarts is not kept waiting for long."""
    return min(LONGEST_RECONNECT_PAUSE_S, pause_after_failure_s(failures + 1))
