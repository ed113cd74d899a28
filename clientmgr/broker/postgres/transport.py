"""`PostgresBroker`: the `Broker` interface on the log. It owns the connections; the modules beside it do the work."""

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import is_transient
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.base.waiting import wait_for_stop
from clientmgr.broker.interface import ConsumerOptions, ConsumeStats, Handler, Message
from clientmgr.broker.message_checks import check_messages
from clientmgr.broker.message_metrics import PUBLISHED
from clientmgr.broker.postgres import topic_administration
from clientmgr.broker.postgres.claim import Subscription
from clientmgr.broker.postgres.consumer import Consumer
from clientmgr.broker.postgres.consumption import Consumption, reconnect_pause_s
from clientmgr.broker.postgres.group_commit import GroupCommit
from clientmgr.broker.postgres.lease import grant_lease, set_for_the_log
from clientmgr.broker.postgres.publish import stage
from clientmgr.broker.postgres.wakeups import Wakeups
from clientmgr.broker.settling import Ledger

log = get_logger(__name__)


class PostgresBroker:
    """Open it with `async with`. All its connections act as the writer role."""

    takes_dedup_keys = True

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self.wakeups = Wakeups(self._connect)
        self._group_commit = GroupCommit(self._connect_to_publish)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.wakeups.stop()
        await self._group_commit.close()

    async def ensure(self, topics: Sequence[str], subscriptions: Mapping[str, str], *, from_start: bool = True) -> None:
        """Over one connection: to open one takes longer than to look for all that a daemon needs."""
        async with await self._connect() as connection:
            for topic in topics:
                await topic_administration.ensure_topic(
                    connection, topic, total_partitions=self._settings.broker_total_partitions
                )
            for subscription, topic in subscriptions.items():
                await topic_administration.ensure_group(connection, subscription, topic, from_start=from_start)

    async def ensure_topic(self, topic: str) -> None:
        await self.ensure([topic], {})

    async def ensure_subscription(self, subscription: str, topic: str, *, from_start: bool = True) -> None:
        await self.ensure([], {subscription: topic}, from_start=from_start)

    async def publish(
        self, topic: str, messages: Sequence[Message], *, connection: AsyncConnection[Any] | None = None
    ) -> None:
        check_messages(topic, messages, self._settings.broker_max_message_bytes)
        if not messages:
            return
        if connection is not None:
            await stage(connection, topic, messages)
        else:
            await self._group_commit.publish(topic, messages)
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
        stop = stop or asyncio.Event()
        found = await self._find_subscription(subscription, stop)
        if found is None:
            return ConsumeStats()
        options = options or self._default_options()
        lease_ms = int(self._settings.broker_lease_s * 1000)
        context = Consumption(
            found,
            handler,
            options,
            stop,
            burst,
            self._connect_to_consume,
            self.wakeups,
            Ledger.open(found.topic, subscription, options.max_attempts),
            self._settings.broker_max_message_bytes,
            # A consumer that publishes must not outlive its lease by that.
            min(self._cut_off_ms or lease_ms, lease_ms),
            self._settings.broker_lease_s,
        )
        if not burst:
            self.wakeups.start()
        await _run_consumers(context)
        return context.ledger.stats

    async def _find_subscription(self, subscription: str, stop: asyncio.Event) -> Subscription | None:
        """Waits for a server that is away: a worker may start before it does."""
        failures = 0
        while not stop.is_set():
            try:
                async with await self._connect() as connection:
                    return await topic_administration.find_subscription(connection, subscription)
            except (psycopg.Error, OSError) as error:
                if not is_transient(error):
                    raise
                log.warning("no connection yet", subscription=subscription, error=str(error).strip())
                await wait_for_stop(stop, reconnect_pause_s(failures))
                failures += 1
        return None

    def _default_options(self) -> ConsumerOptions:
        return ConsumerOptions(
            batch_size=self._settings.broker_batch_size,
            wait_period_ms=self._settings.broker_wait_period_ms,
            max_attempts=self._settings.broker_max_attempts,
        )

    @property
    def _cut_off_ms(self) -> int | None:
        return self._settings.broker_publish_timeout_ms or None

    async def _connect(self) -> AsyncConnection[Any]:
        # Autocommit: we send BEGIN and COMMIT ourselves, in one round trip with the statements beside them.
        return await self._database.connect_async(Role.WRITER, autocommit=True)

    async def _connect_to_consume(self) -> AsyncConnection[Any]:
        connection = await self._connect()
        await grant_lease(connection, self._settings.broker_lease_s)
        return connection

    async def _connect_to_publish(self) -> AsyncConnection[Any]:
        connection = await self._connect()
        await set_for_the_log(connection, {"idle_in_transaction_session_timeout": self._cut_off_ms or 0})
        return connection


async def _run_consumers(context: Consumption) -> None:
    """All loops of one `consume` call. One that fails ends the others, as does a cancellation."""
    tasks = [asyncio.create_task(Consumer(context).run()) for _ in range(context.options.concurrency)]
    waker = asyncio.create_task(_wake_to_stop(context))
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in (waker, *tasks):
            task.cancel()
        await asyncio.gather(waker, *tasks, return_exceptions=True)


async def _wake_to_stop(context: Consumption) -> None:
    await context.stop.wait()
    context.bell.wake_all()
