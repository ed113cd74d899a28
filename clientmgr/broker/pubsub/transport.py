"""`PubSubBroker`: the `Broker` interface on Google Pub/Sub, or on any server with the same API.

A batch is what one Pull brings. It is handled in a database transaction; the commit comes first, then what it published
is sent and confirmed, then it is acknowledged: at least once, harmless for a handler whose writes are idempotent. The
tenants are the ordering keys. Waiting retries, dead letters and attempts are kept in our own database, so that a retry
holds up nobody and `clientmgr failures` shows both transports' dead.
"""

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from google.api_core import exceptions
from google.pubsub_v1 import types
from psycopg import AsyncConnection

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import TransientError, first_of, is_transient
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.base.waiting import wait_for_stop
from clientmgr.broker.interface import ConsumerOptions, ConsumeStats, Handler, Message
from clientmgr.broker.message_metrics import PUBLISHED
from clientmgr.broker.pubsub import wire
from clientmgr.broker.pubsub.client import RETRY_FOR_S, PubSubClient
from clientmgr.broker.pubsub.consumer import Consumer, FlowControl
from clientmgr.broker.pubsub.handling import Handling
from clientmgr.broker.pubsub.records import Records
from clientmgr.broker.pubsub.resources import MissingResourcesError, Resources
from clientmgr.broker.settling import Ledger

log = get_logger(__name__)

BURST_QUIET_S = 1.0
PAUSE_S = 2.0


class PubSubUnavailableError(TransientError):
    """The server did not answer in time."""


class PubSubBroker:
    """Open it with `async with`.

    `burst_quiet_s`: how long nothing must come before a burst is over. `retry_for_s`: how long a call is repeated while
    the server does not answer.
    """

    takes_dedup_keys = False

    def __init__(
        self,
        database: Database,
        settings: Settings,
        *,
        burst_quiet_s: float = BURST_QUIET_S,
        retry_for_s: float = RETRY_FOR_S,
    ) -> None:
        self._database = database
        self._settings = settings
        self._burst_quiet_s = burst_quiet_s
        self._client = PubSubClient(settings, retry_for_s=retry_for_s)
        self._resources = Resources(self._client, settings)

    async def __aenter__(self) -> Self:
        await self._client.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    async def ensure_topic(self, topic: str) -> None:
        await self.ensure([topic], {})

    async def ensure_subscription(self, subscription: str, topic: str, *, from_start: bool = True) -> None:
        """From the start: as far back as the topic keeps its messages; ours keep them for BROKER_RETENTION_HOURS."""
        await self.ensure([], {subscription: topic}, from_start=from_start)

    async def ensure(self, topics: Sequence[str], subscriptions: Mapping[str, str], *, from_start: bool = True) -> None:
        """All at once, so that one error names everything that is missing and may not be created."""
        try:
            await self._resources.ensure(topics, subscriptions, from_start=from_start)
        except Exception as error:
            raise _translated(error) from error

    async def publish(
        self, topic: str, messages: Sequence[Message], *, connection: AsyncConnection[Any] | None = None
    ) -> None:
        """Publish, in requests of some hundred messages. A request succeeds or fails as a whole.

        Pub/Sub can't join a transaction: `connection` changes nothing, the messages are out when this returns, also if
        the transaction is rolled back later. Where that matters, publish after the commit, or use `Batch.publish`.
        """
        for message in messages:
            wire.check(topic, message, self._settings.broker_max_message_bytes)
        try:
            for portion in wire.requests(messages) if messages else []:
                await self._client.publish(topic, portion)
        except exceptions.NotFound:
            raise self._resources.topic_is_gone(topic) from None
        except Exception as error:
            raise _translated(error) from error
        PUBLISHED.labels(topic).inc(len(messages))

    async def consume(
        self,
        subscription: str,
        handler: Handler,
        *,
        options: ConsumerOptions | None = None,
        stop: asyncio.Event | None = None,
        burst: bool = False,
    ) -> ConsumeStats:
        options = options or ConsumerOptions(
            batch_size=self._settings.broker_batch_size,
            wait_period_ms=self._settings.broker_wait_period_ms,
            max_attempts=self._settings.broker_max_attempts,
        )
        stop = stop or asyncio.Event()
        found = await self._find(subscription, None if burst else stop)
        if found is None:
            return ConsumeStats()
        topic = found.topic.rpartition("/")[2]
        # A connection per batch in hand, one for waiting retries, one to count failures.
        pool = self._database.pool_async(Role.WRITER, size=options.concurrency + 2)
        async with pool:
            handling = Handling(
                subscription,
                topic,
                handler,
                options,
                self._client,
                self._resources,
                pool,
                Records(subscription, topic),
                Ledger.open(topic, subscription, options.max_attempts),
                found.ack_deadline_seconds,
                self._settings.broker_max_message_bytes,
            )
            flow = FlowControl(
                self._settings.pubsub_max_outstanding_messages, self._settings.pubsub_max_outstanding_bytes
            )
            async with pool.connection() as connection:
                await handling.records.forget_old_failures(connection)
            consumer = Consumer(handling, flow, stop, self._burst_quiet_s)
            try:
                await (consumer.run_burst() if burst else consumer.run())
            except BaseExceptionGroup as group:
                raise first_of(group) from group
        return handling.ledger.stats

    async def _find(self, subscription: str, stop: asyncio.Event | None) -> types.Subscription | None:
        """The subscription. A worker that starts before the server waits for it, until `stop`; a burst does not."""
        while stop is None or not stop.is_set():
            try:
                found = await self._client.find_subscription(subscription)
            except Exception as error:
                if stop is None or not is_transient(error):
                    raise _translated(error) from error
                log.warning("Pub/Sub does not answer yet", subscription=subscription, error=str(error))
                await wait_for_stop(stop, PAUSE_S)
                continue
            if found is None:
                raise MissingResourcesError(self._settings.pubsub_project, subscriptions=[subscription])
            return found
        return None


def _translated(error: Exception) -> Exception:
    """Google's transient errors as one of ours; others stay as they are."""
    return PubSubUnavailableError(f"Pub/Sub does not answer: {error}") if is_transient(error) else error
