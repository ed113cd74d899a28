"""One batch, from the handler's call to the acknowledgement: commit first, then publish, then acknowledge.

An exception fails the batch. `base.errors.classify` decides: after an outage all of it comes again; otherwise it is
taken apart, message by message behind savepoints. Only the failing message is dead, or comes again with those behind it
of its ordering key, and the others are done.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from google.api_core import exceptions
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from clientmgr.base.errors import ErrorKind, is_transient
from clientmgr.base.logs import get_logger
from clientmgr.broker.batch import TransactionBatch
from clientmgr.broker.interface import ConsumerOptions, Handler, Message, ReceivedMessage
from clientmgr.broker.message_metrics import PUBLISHED
from clientmgr.broker.pubsub import wire
from clientmgr.broker.pubsub.client import PubSubClient
from clientmgr.broker.pubsub.records import Records
from clientmgr.broker.pubsub.resources import Resources
from clientmgr.broker.pubsub.wire import Delivery
from clientmgr.broker.settling import (
    BURST_PATIENCE_S,
    SAVEPOINTS_A_COMMIT,
    Handled,
    Ledger,
    Settlement,
    TransactionEndedError,
    call_handler,
    passes_erased,
    pause_after_failure_s,
)

log = get_logger(__name__)

FIRST_PAUSE_S = 0.2


class PubSubBatch(TransactionBatch):
    """Implements `interface.Batch`. It also refuses what only Pub/Sub would refuse."""

    def publish(self, topic: str, messages: Sequence[Message], *, encoded_here: bool = False) -> None:
        for message in messages:
            wire.check_carryable(message)
        super().publish(topic, messages, encoded_here=encoded_here)

    def _check_attributes(self, message: Message) -> None:
        super()._check_attributes(message)
        wire.check_carryable(message)


@dataclass(slots=True)
class Redelivery:
    """When the server will redeliver what failed last: a burst has to wait for it."""

    expected_at: float = 0.0


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
    ledger: Ledger
    ack_deadline_s: int
    max_message_bytes: int
    redelivery: Redelivery = field(default_factory=Redelivery)

    async def handle_pulled(self, deliveries: Sequence[Delivery]) -> None:
        """Handle what a pull brought. Whatever happens, each message is acknowledged, given back or left to expire."""
        started = time.monotonic()
        deliveries = wire.once_each(deliveries)
        if erased := [one for one in deliveries if passes_erased(one.message.attributes, one.message.data)]:
            await self._acknowledge(erased)
            deliveries = [one for one in deliveries if one not in erased]
        if not deliveries:
            return
        keeping = asyncio.create_task(self._keep_leases(_ack_ids(deliveries)))
        try:
            messages = [delivery.message for delivery in deliveries]
            try:
                async with self.pool.connection() as connection, connection.transaction():
                    messages = await self._with_attempts(connection, deliveries)
                    handled = await self.run_handler(connection, messages)
                await self.publish(handled.publications)
                await self._forget_failures(deliveries, messages)
            except TransactionEndedError:
                raise
            except Exception as error:  # noqa: BLE001  whatever a handler throws is judged in one place
                verdict = self.judge(error, messages)
                # A single message is to blame by itself: there is no need to try it once more.
                if verdict is ErrorKind.TRANSIENT or (verdict is ErrorKind.UNFORESEEN and len(messages) == 1):
                    await self._give_back_failed(deliveries, messages)
                else:
                    await self._take_apart(deliveries, messages)
                return
            await self._acknowledge(deliveries)
            self.ledger.count(handled.settlement, started)
        except (asyncio.CancelledError, TransactionEndedError):
            await asyncio.shield(self.give_back(deliveries))
            raise
        finally:
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping

    async def run_handler(
        self, connection: AsyncConnection[Any], messages: Sequence[ReceivedMessage]
    ) -> Handled[ReceivedMessage]:
        """Call the handler inside the connection's transaction, and record there what it answers."""
        batch = PubSubBatch(self.subscription, messages, connection, max_message_bytes=self.max_message_bytes)
        handled = await call_handler(self.handler, batch, messages, timeout_s=self.options.handler_timeout_s)
        # Now, while it can still fail: after the commit nobody would notice.
        await self.resources.require_topics(list(handled.publications))
        await self.records.settle(connection, handled.settlement)
        return handled

    async def publish(self, publications: Mapping[str, Sequence[Message]]) -> None:
        for topic in sorted(publications):
            try:
                for portion in wire.requests(publications[topic]):
                    await self.client.publish(topic, portion)
            except exceptions.NotFound:
                raise self.resources.topic_is_gone(topic) from None
            PUBLISHED.labels(topic).inc(len(publications[topic]))

    async def give_back(self, deliveries: Sequence[Delivery], delay_s: float = 0.0) -> None:
        """Have messages delivered again, not before `delay_s`. Pub/Sub knows only whole seconds."""
        seconds = round(delay_s)
        await self._tell_server(self.client.set_deadline(self.subscription, _ack_ids(deliveries), seconds))
        if seconds <= BURST_PATIENCE_S:
            self.redelivery.expected_at = max(self.redelivery.expected_at, time.monotonic() + seconds)

    def judge(self, error: Exception, messages: Sequence[ReceivedMessage]) -> ErrorKind:
        """Whether the messages come again as they are (transient), by themselves (unforeseen), or never (permanent)."""
        return self.ledger.judge(error, messages=len(messages), failures=_attempt(messages))

    async def _with_attempts(
        self, connection: AsyncConnection[Any], deliveries: Sequence[Delivery]
    ) -> list[ReceivedMessage]:
        """The messages, with their number of attempts. We count them where the server does not."""
        uncounted = [delivery.message.message_id for delivery in deliveries if not delivery.counted]
        failures = await self.records.attempts(connection, uncounted) if uncounted else {}
        return [
            msgspec.structs.replace(
                delivery.message, attempt=delivery.message.attempt + failures.get(delivery.message.message_id, 0)
            )
            for delivery in deliveries
        ]

    async def _forget_failures(self, deliveries: Sequence[Delivery], messages: Sequence[ReceivedMessage]) -> None:
        """Called once what they published is out, not in the batch's transaction: until then they may fail again."""
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
                # Most likely the database itself has failed: then the failure does not count against the messages.
                if not is_transient(error):
                    raise
        await self.give_back(deliveries, pause_s(messages))

    async def _take_apart(self, deliveries: Sequence[Delivery], messages: Sequence[ReceivedMessage]) -> None:
        """Handle each message by itself. One that has to wait keeps those behind it of its ordering key waiting.

        An outage ends it: then all the others wait.
        """
        started = time.monotonic()
        todo = list(zip(deliveries, messages, strict=True))
        failed: list[tuple[Delivery, ReceivedMessage]] = []
        behind: list[tuple[Delivery, ReceivedMessage]] = []
        outage = False
        while todo and not outage:
            parts: list[Handled[ReceivedMessage]] = []
            done: list[tuple[Delivery, ReceivedMessage]] = []
            some, rest = todo[:SAVEPOINTS_A_COMMIT], todo[SAVEPOINTS_A_COMMIT:]
            try:
                async with self.pool.connection() as connection, connection.transaction():
                    for place, (delivery, message) in enumerate(some):
                        if message.tenant and any(message.tenant == other.tenant for _, other in failed):
                            behind.append((delivery, message))
                            continue
                        one = await self.handle_alone(connection, message)
                        if isinstance(one, Handled):
                            parts.append(one)
                            done.append((delivery, message))
                        else:
                            failed.append((delivery, message))
                            if outage := one is ErrorKind.TRANSIENT:
                                behind += some[place + 1 :]
                                break
                handled = Handled.together(parts)
                await self.publish(handled.publications)
                await self._forget_failures([delivery for delivery, _ in done], [message for _, message in done])
            except TransactionEndedError:
                raise
            except Exception as error:  # noqa: BLE001  not the handler's: the commit, or what it published
                self.judge(error, [message for _, message in todo])
                failed = [one for one in failed if one not in some] + some
                behind = [one for one in behind if one not in some]
                outage, done = True, []
            if done:
                await self._acknowledge([delivery for delivery, _ in done])
                self.ledger.count(handled.settlement, started)
            todo = rest
        if failed:
            await self._give_back_failed([delivery for delivery, _ in failed], [message for _, message in failed])
        if behind or todo:
            waiting = [*behind, *todo]
            await self.give_back([delivery for delivery, _ in waiting], pause_s([message for _, message in failed]))

    async def handle_alone(
        self, connection: AsyncConnection[Any], message: ReceivedMessage
    ) -> Handled[ReceivedMessage] | ErrorKind:
        """Handle one message behind a savepoint. The kind of its error: it may succeed later."""
        try:
            async with connection.transaction():
                handled = await self.run_handler(connection, [message])
                # A deferred constraint would fail only at COMMIT, and would take the others with it.
                await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
                return handled
        except TransactionEndedError:
            raise
        except Exception as error:
            if connection.closed:
                raise
            verdict = self.judge(error, [message])
            if verdict is not ErrorKind.PERMANENT:
                return verdict
            dead = Handled(Settlement.all_dead([message], error))
            await self.records.settle(connection, dead.settlement)
            return dead

    async def _acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """If this fails they come again, to a handler whose writes are idempotent."""
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


def _ack_ids(deliveries: Sequence[Delivery]) -> list[str]:
    return [ack_id for delivery in deliveries for ack_id in delivery.ack_ids]


def pause_s(messages: Sequence[ReceivedMessage]) -> float:
    """How long messages wait that failed together."""
    return pause_after_failure_s(_attempt(messages), first_s=FIRST_PAUSE_S)


def _attempt(messages: Sequence[ReceivedMessage]) -> int:
    return max(message.attempt for message in messages)
