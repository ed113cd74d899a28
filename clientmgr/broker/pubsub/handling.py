"""One batch, from the handler's call to the acknowledgement: commit first, then publish, then acknowledge.

An exception fails the batch. `clientmgr.errors.classify` decides: what may pass comes again, what can't is taken apart,
message by message behind savepoints, so that only the failing one is dead.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from google.api_core import exceptions
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool

from clientmgr.base.errors import ErrorKind, classify
from clientmgr.base.logs import get_logger
from clientmgr.broker.interface import (
    ConsumerOptions,
    ConsumeStats,
    Dead,
    Handler,
    Message,
    Outcome,
    ReceivedMessage,
    Retry,
)
from clientmgr.broker.message_metrics import PUBLISHED, SubscriptionMetrics
from clientmgr.broker.postgres.batch import PostgresBatch
from clientmgr.broker.postgres.consumption import TransactionEndedError
from clientmgr.broker.pubsub import wire
from clientmgr.broker.pubsub.client import PubSubClient, is_transient
from clientmgr.broker.pubsub.records import Records
from clientmgr.broker.pubsub.resources import Resources
from clientmgr.broker.pubsub.wire import Delivery

log = get_logger(__name__)

# In burst mode: what is due again by then is waited for, what is due later is left.
BURST_PATIENCE_S = 1.0
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.1, 15.0
# More than 64 savepoints in a transaction no longer fit into a backend's shared cache.
MESSAGES_A_COMMIT = 32


class PubSubBatch(PostgresBatch):
    """Implements `interface.Batch`: the same as the log's, and also refuses what only Pub/Sub would not take."""

    def publish(self, topic: str, messages: Sequence[Message], *, encoded_here: bool = False) -> None:
        for message in messages:
            wire.check_room_for_attributes(message)
        super().publish(topic, messages, encoded_here=encoded_here)

    def _check_attributes(self, message: Message) -> None:
        super()._check_attributes(message)
        wire.check_room_for_attributes(message)


@dataclass(slots=True)
class Redelivery:
    """When the server will deliver again what failed last: a burst has to wait for it."""

    expected_at: float = 0.0


@dataclass(slots=True)
class Settled:
    """What became of messages whose handler did not fail."""

    done: int = 0
    retried: int = 0
    dead: int = 0
    publications: dict[str, list[Message]] = field(default_factory=dict)

    def add(self, other: "Settled") -> None:
        self.done += other.done
        self.retried += other.retried
        self.dead += other.dead
        for topic, messages in other.publications.items():
            self.publications.setdefault(topic, []).extend(messages)


@dataclass(frozen=True)
class Handling:
    """What all batches of one `consume` call have in common."""

    subscription: str
    topic: str
    handler: Handler
    options: ConsumerOptions
    client: PubSubClient
    resources: Resources
    pool: AsyncConnectionPool[AsyncConnection[Any]]
    records: Records
    metrics: SubscriptionMetrics
    ack_deadline_s: int
    max_message_bytes: int
    stats: ConsumeStats = field(default_factory=ConsumeStats)
    redelivery: Redelivery = field(default_factory=Redelivery)

    async def handle_pulled(self, deliveries: Sequence[Delivery]) -> None:
        """Handle what a pull brought. Whatever happens, each message is acknowledged, given back or left to expire."""
        started = time.monotonic()
        deliveries = wire.once_each(deliveries)
        keeping = asyncio.create_task(self._keep_leases(_ack_ids(deliveries)))
        try:
            messages = [delivery.message for delivery in deliveries]
            try:
                async with self.pool.connection() as connection, connection.transaction():
                    messages = await self._with_attempts(connection, deliveries)
                    settled = await self.run_handler(connection, messages)
                await self.publish(settled.publications)
                await self._forget_failures(deliveries, messages)
            except TransactionEndedError:
                raise
            except Exception as error:  # noqa: BLE001  whatever a handler throws is judged in one place
                if self.may_pass(error, messages):
                    await self._give_back_failed(deliveries, messages)
                else:
                    await self._take_apart(deliveries, messages)
                return
            await self._acknowledge(deliveries)
            self.count(settled, started)
        except (asyncio.CancelledError, TransactionEndedError):
            await asyncio.shield(self.give_back(deliveries))
            raise
        finally:
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping

    async def run_handler(self, connection: AsyncConnection[Any], messages: Sequence[ReceivedMessage]) -> Settled:
        """Call the handler inside the connection's transaction, and record there what it answers."""
        batch = PubSubBatch(self.subscription, messages, connection, max_message_bytes=self.max_message_bytes)
        outcomes = await self.handler(batch)
        if connection.info.transaction_status is TransactionStatus.IDLE:
            raise TransactionEndedError("the handler ended the batch's transaction; it may only use savepoints")
        # Now, while it can still fail: after the commit there is nobody left to tell.
        await self.resources.require_topics(list(batch.publications))
        retries, deaths = _sorted_out(messages, outcomes)
        if retries:
            await self.records.delay(connection, retries)
        if deaths:
            await self.records.bury(connection, deaths)
        publications = {topic: list(published) for topic, published in batch.publications.items()}
        return Settled(len(messages) - len(retries) - len(deaths), len(retries), len(deaths), publications)

    async def publish(self, publications: Mapping[str, Sequence[Message]]) -> None:
        for topic in sorted(publications):
            try:
                for portion in wire.requests(publications[topic]):
                    await self.client.publish(topic, portion)
            except exceptions.NotFound:
                raise self.resources.topic_is_gone(topic) from None
            PUBLISHED.labels(topic).inc(len(publications[topic]))

    async def give_back(self, deliveries: Sequence[Delivery], delay_s: float = 0.0) -> None:
        """To be delivered again, not before `delay_s` (in whole seconds: that is all Pub/Sub knows)."""
        seconds = round(delay_s)
        await self._tell_server(self.client.set_deadline(self.subscription, _ack_ids(deliveries), seconds))
        if seconds <= BURST_PATIENCE_S:
            self.redelivery.expected_at = max(self.redelivery.expected_at, time.monotonic() + seconds)

    def may_pass(self, error: Exception, messages: Sequence[ReceivedMessage]) -> bool:
        """Whether the messages are to come again as they are."""
        kind = ErrorKind.TRANSIENT if is_transient(error) else classify(error)
        self.metrics.failed(kind.value)
        attempt = max(message.attempt for message in messages)
        log.warning(
            "batch failed",
            topic=self.topic,
            subscription=self.subscription,
            messages=len(messages),
            attempt=attempt,
            kind=kind.value,
            error_type=type(error).__name__,
            error=str(error),
            exc_info=error if kind is ErrorKind.UNFORESEEN else None,
        )
        if kind is ErrorKind.UNFORESEEN:
            return attempt < self.options.max_attempts
        return kind is ErrorKind.TRANSIENT

    def count(self, settled: Settled, started: float) -> None:
        """Note what has been committed."""
        self.stats.done += settled.done
        self.stats.retried += settled.retried
        self.stats.dead += settled.dead
        self.stats.batches += 1
        self.metrics.settled(
            done=settled.done, retried=settled.retried, dead=settled.dead, seconds=time.monotonic() - started
        )

    async def _with_attempts(
        self, connection: AsyncConnection[Any], deliveries: Sequence[Delivery]
    ) -> list[ReceivedMessage]:
        """The messages, with their number of attempts from our own books where the server keeps none."""
        uncounted = [delivery.message.message_id for delivery in deliveries if not delivery.counted]
        failures = await self.records.attempts(connection, uncounted) if uncounted else {}
        return [
            msgspec.structs.replace(
                delivery.message, attempt=delivery.message.attempt + failures.get(delivery.message.message_id, 0)
            )
            for delivery in deliveries
        ]

    async def _forget_failures(self, deliveries: Sequence[Delivery], messages: Sequence[ReceivedMessage]) -> None:
        """Once what they published is out, and not in the batch's transaction: until then they may fail again."""
        failed_before = [
            message.message_id
            for delivery, message in zip(deliveries, messages, strict=True)
            if message.attempt > delivery.message.attempt
        ]
        if failed_before:
            async with self.pool.connection() as connection:
                await self.records.forget_failures(connection, failed_before)

    async def _give_back_failed(self, deliveries: Sequence[Delivery], messages: Sequence[ReceivedMessage]) -> None:
        uncounted = [delivery.message.message_id for delivery in deliveries if not delivery.counted]
        if uncounted:
            try:
                async with self.pool.connection() as connection:
                    await self.records.count_failures(connection, uncounted)
            except Exception as error:
                # The database is what failed, most likely: then its absence is not held against the messages.
                if classify(error) is not ErrorKind.TRANSIENT:
                    raise
        await self.give_back(deliveries, backoff_s(max(message.attempt for message in messages)))

    async def _take_apart(self, deliveries: Sequence[Delivery], messages: Sequence[ReceivedMessage]) -> None:
        """Each message by itself. The first that has to wait ends it, and those behind it wait with it."""
        started = time.monotonic()
        at = 0
        waiting = False
        while at < len(deliveries) and not waiting:
            settled = Settled()
            end = min(at + MESSAGES_A_COMMIT, len(deliveries))
            reached = at
            try:
                async with self.pool.connection() as connection, connection.transaction():
                    while reached < end and not waiting:
                        one = await self.handle_alone(connection, messages[reached])
                        waiting = one is None
                        if one is not None:
                            settled.add(one)
                            reached += 1
                await self.publish(settled.publications)
                await self._forget_failures(deliveries[at:reached], messages[at:reached])
            except TransactionEndedError:
                raise
            except Exception as error:  # noqa: BLE001  not the handler's: the commit, or what it published
                self.may_pass(error, messages[at:])
                break
            await self._acknowledge(deliveries[at:reached])
            if reached > at:
                self.count(settled, started)
            at = reached
        if at < len(deliveries):
            await self._give_back_failed(deliveries[at:], messages[at:])

    async def handle_alone(self, connection: AsyncConnection[Any], message: ReceivedMessage) -> Settled | None:
        """Handle one message behind a savepoint. None: it may succeed later."""
        try:
            async with connection.transaction():
                settled = await self.run_handler(connection, [message])
                # A deferred constraint would speak up only at COMMIT, and would take the others with it.
                await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
                return settled
        except TransactionEndedError:
            raise
        except Exception as error:
            if connection.closed:
                raise
            if self.may_pass(error, [message]):
                return None
            verdict = Dead(str(error) or type(error).__name__, type(error).__name__)
            await self.records.bury(connection, [(message, verdict)])
            return Settled(dead=1)

    async def _acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Not acknowledged they come again, to a handler whose writes are idempotent."""
        await self._tell_server(self.client.acknowledge(self.subscription, _ack_ids(deliveries)))

    async def _keep_leases(self, ack_ids: Sequence[str]) -> None:
        while True:
            await asyncio.sleep(self.ack_deadline_s / 3)
            keep = self.client.set_deadline(self.subscription, ack_ids, self.ack_deadline_s, retry=False)
            await self._tell_server(keep)

    async def _tell_server(self, call: Any) -> None:
        try:
            await call
        except Exception as error:
            if not is_transient(error):
                raise
            log.warning("Pub/Sub does not answer; leases will expire", subscription=self.subscription, error=str(error))


def backoff_s(failures: int, jitter: Callable[[float, float], float] = random.uniform) -> float:
    """Exponential with full jitter: those who failed together do not come back together."""
    return jitter(0.0, min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(failures, 30)))


def _ack_ids(deliveries: Sequence[Delivery]) -> list[str]:
    return [ack_id for delivery in deliveries for ack_id in delivery.ack_ids]


def _sorted_out(
    messages: Sequence[ReceivedMessage], outcomes: Sequence[Outcome] | None
) -> tuple[list[tuple[ReceivedMessage, Retry]], list[tuple[ReceivedMessage, Dead]]]:
    if outcomes is None:
        return [], []
    if len(outcomes) != len(messages):
        raise TypeError(f"the handler gave {len(outcomes)} outcomes for {len(messages)} messages")
    pairs = list(zip(messages, outcomes, strict=True))
    return (
        [(message, outcome) for message, outcome in pairs if isinstance(outcome, Retry)],
        [(message, outcome) for message, outcome in pairs if isinstance(outcome, Dead)],
    )
