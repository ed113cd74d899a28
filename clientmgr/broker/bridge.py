"""Copies Pub/Sub subscriptions into topics of the PostgreSQL log, where Dagster's sensors read.

Bytes and attributes stay as they are. A message is acknowledged after the commit and copied once: its id is remembered
in the same transaction.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
import psycopg
from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from clientmgr.base.backoff import backoff_s
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import InvalidInputError, PermanentError, first_of, is_transient
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.base.waiting import unless_stopped, wait_for_stop
from clientmgr.broker.interface import Message
from clientmgr.broker.message_checks import check_name
from clientmgr.broker.message_metrics import PUBLISHED
from clientmgr.broker.postgres.publish import append_transactions
from clientmgr.broker.postgres.topic_administration import ensure_topic
from clientmgr.broker.pubsub.client import PubSubClient
from clientmgr.broker.pubsub.resources import MissingResourcesError
from clientmgr.broker.pubsub.wire import Delivery, storable
from clientmgr.broker.settling import passes_erased
from clientmgr.contracts import publishers

log = get_logger(__name__)

QUERIES = named_queries("gateway/queries/bridge.sql")
PULL_AT_MOST = 1000
PULL_WAIT_S = 30.0
BURST_QUIET_S = 1.0
LOOK_AGAIN_S = 0.05
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
FORGET_EVERY_S = 3600.0
# Longer than Pub/Sub keeps a message by default: after that it can't be delivered again.
REMEMBER_AT_LEAST = timedelta(days=8)


@dataclass(slots=True)
class BridgeStats:
    """Messages by subscription."""

    copied: dict[str, int] = field(default_factory=dict)
    seen_before: dict[str, int] = field(default_factory=dict)


def parse_routes(names: Sequence[str]) -> dict[str, str]:
    """`subscription` or `subscription=topic`, as on the command line; the log's topic has the same name by default."""
    routes: dict[str, str] = {}
    for name in names:
        subscription, _, topic = name.partition("=")
        check_name("subscription", subscription)
        check_name("topic", topic or subscription)
        if routes.setdefault(subscription, topic or subscription) != (topic or subscription):
            raise InvalidInputError("subscription", "one topic for each", name)
    if not routes:
        raise InvalidInputError("subscriptions", "at least one to copy", "none")
    return routes


async def run(
    settings: Settings,
    database: Database,
    stop: asyncio.Event,
    *,
    routes: Mapping[str, str],
    burst: bool = False,
    burst_quiet_s: float = BURST_QUIET_S,
) -> BridgeStats:
    """Copy until `stop` is set, or, in burst mode, until nothing comes for a moment. See `parse_routes`."""
    client = PubSubClient(settings)
    await client.open()
    try:
        await _prepare(settings, database, client, routes)
        stats = BridgeStats()
        async with asyncio.TaskGroup() as copies:
            for route in routes.items():
                one = _Copy(settings, database, client, route, stats)
                copies.create_task(one.run(stop, quiet_s=burst_quiet_s if burst else None))
        return stats
    except BaseExceptionGroup as group:
        raise first_of(group) from group
    finally:
        await client.close()


async def _prepare(settings: Settings, database: Database, client: PubSubClient, routes: Mapping[str, str]) -> None:
    missing = [name for name in routes if await client.find_subscription(name) is None]
    if missing:
        raise MissingResourcesError(settings.pubsub_project, subscriptions=missing)
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        for subscription, topic in routes.items():
            await ensure_topic(connection, topic, total_partitions=settings.broker_total_partitions)
            if settings.pubsub_emulator_host or settings.pubsub_gateway_address:
                await _refuse_circle(connection, client.subscription_path(subscription), topic)


async def _refuse_circle(connection: AsyncConnection[Any], path: str, topic: str) -> None:
    async with connection.cursor(row_factory=tuple_row) as cursor:
        row = await (await cursor.execute(QUERIES["topic_behind_gateway"], {"name": path})).fetchone()
    if row is not None and row[0] == topic:
        raise PermanentError(
            f"{path} reads the log's own topic {topic} through our gateway: copied there, it would grow for ever"
        )


class _Copy:
    """One subscription. A single loop keeps the order of each ordering key."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        client: PubSubClient,
        route: tuple[str, str],
        stats: BridgeStats,
    ) -> None:
        self._database = database
        self._client = client
        self._subscription, self._topic = route
        self._stats = stats
        self._cut_off_ms = settings.broker_publish_timeout_ms or None
        self._remember_for = max(REMEMBER_AT_LEAST, timedelta(hours=settings.broker_retention_hours))
        self._connection: AsyncConnection[Any] | None = None
        self._forget_at = 0.0

    async def run(self, stop: asyncio.Event, *, quiet_s: float | None) -> None:
        """Until stopped, or until nothing has come for `quiet_s`."""
        failures = 0
        last_news = time.monotonic()
        try:
            while not stop.is_set():
                try:
                    deliveries = await self._pull(stop, now=quiet_s is not None)
                    if deliveries:
                        await self._copy(deliveries)
                        last_news = time.monotonic()
                    elif quiet_s is not None:
                        if time.monotonic() > last_news + quiet_s:
                            return
                        await wait_for_stop(stop, LOOK_AGAIN_S)
                    await self._forget_old()
                    failures = 0
                except Exception as error:
                    if not is_transient(error):
                        raise
                    failures += 1
                    log.warning("copying failed, trying again soon", subscription=self._subscription, error=str(error))
                    await self._disconnect()
                    await wait_for_stop(
                        stop, backoff_s(failures, first_s=FIRST_PAUSE_S, longest_s=LONGEST_PAUSE_S, draw=1.0)
                    )
        finally:
            await self._disconnect()

    async def _pull(self, stop: asyncio.Event, *, now: bool) -> list[Delivery]:
        call = (
            self._client.pull_now(self._subscription, self._topic, PULL_AT_MOST)
            if now
            else self._client.pull(self._subscription, self._topic, PULL_AT_MOST, PULL_WAIT_S)
        )
        # If the pull is cancelled, the server delivers its messages again.
        return await unless_stopped(stop, call) or []

    async def _copy(self, deliveries: Sequence[Delivery]) -> None:
        connection = await self._connected()
        async with connection.transaction():
            async with connection.cursor(row_factory=tuple_row) as cursor:
                ids = list({delivery.message.message_id for delivery in deliveries})
                await cursor.execute(QUERIES["remember"], {"subscription": self._subscription, "message_ids": ids})
                new = {row[0] for row in await cursor.fetchall()}
            messages = []
            for delivery in deliveries:
                if delivery.message.message_id in new:
                    new.discard(delivery.message.message_id)
                    if not passes_erased(delivery.message.attributes, delivery.message.data):
                        messages.append(_message(self._topic, delivery))
            if messages:
                await append_transactions(
                    connection, self._topic, [(message,) for message in messages], cut_off_ms=self._cut_off_ms
                )
        await self._client.acknowledge(self._subscription, [delivery.ack_id for delivery in deliveries])
        PUBLISHED.labels(self._topic).inc(len(messages))
        copied, seen = self._stats.copied, self._stats.seen_before
        copied[self._subscription] = copied.get(self._subscription, 0) + len(messages)
        seen[self._subscription] = seen.get(self._subscription, 0) + len(deliveries) - len(messages)

    async def _forget_old(self) -> None:
        if time.monotonic() < self._forget_at:
            return
        self._forget_at = time.monotonic() + FORGET_EVERY_S
        connection = await self._connected()
        await connection.execute(QUERIES["forget"], {"keep": self._remember_for})

    async def _connected(self) -> AsyncConnection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = await self._database.connect_async(Role.WRITER, autocommit=True)
        return self._connection

    async def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                await self._connection.close()
            self._connection = None


class _WithCustomer(msgspec.Struct):
    customer_id: int | str = msgspec.field(name="customerId", default="")


_DECODER = msgspec.json.Decoder(_WithCustomer)


def _message(topic: str, delivery: Delivery) -> Message:
    message = delivery.message
    return Message(
        message.data,
        storable(message.tenant) or _customer_in(message.data),
        storable(message.key),
        {storable(name): storable(value) for name, value in message.attributes.items()}
        | publishers.stamp(topic, publishers.UNKNOWN_TO_US),
    )


def _customer_in(data: bytes) -> str:
    """The customer that a message without an ordering key is about; empty when it does not say."""
    try:
        return storable(str(_DECODER.decode(data).customer_id))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # RecursionError: nested too deeply. Anybody may publish such a message, so it must not stop us.
        return ""
