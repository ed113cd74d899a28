"""The Subscriber service's calls about subscriptions themselves: create, get, list, update, delete, seek."""

from collections.abc import Iterable, Sequence
from datetime import UTC
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.gateway import paging
from clientmgr.broker.gateway.callers import Caller
from clientmgr.broker.gateway.configuration import (
    SubscriptionRow,
    changed_subscription,
    normalised_subscription,
    note_without_effect,
    refuse_push,
    subscription_columns,
)
from clientmgr.broker.gateway.leases import AckId
from clientmgr.broker.gateway.names import Names, check_subscription, project_of, topic_parts
from clientmgr.broker.gateway.pool import Pool
from clientmgr.broker.gateway.protos import (
    DetachSubscriptionResponse,
    Empty,
    ListSubscriptionsResponse,
    Proto,
    SeekResponse,
)
from clientmgr.broker.gateway.refusals import (
    already_exists,
    exhausted,
    invalid,
    not_found,
    not_found_when_gone,
    not_possible_now,
)
from clientmgr.broker.gateway.rpc import Call
from clientmgr.broker.gateway.wakeups import Wakeups
from clientmgr.contracts.publishers import STAMPED

QUERIES = named_queries("gateway/queries/subscriptions.sql")
TOPIC_QUERIES = named_queries("gateway/queries/topics.sql")
MAX_IDS = 10_000
"""Subscriptions whose ids we remember."""


class Subscriptions:
    """Subscriptions in the database, and the calls that manage them."""

    def __init__(self, pool: Pool, names: Names, wakeups: Wakeups, most: int) -> None:
        """`most`: subscriptions that a caller may make."""
        self._pool = pool
        self._names = names
        self._wakeups = wakeups
        self._most = most
        self._ids: dict[str, int] = {}

    async def find(self, name: str) -> SubscriptionRow:
        """The subscription, or NOT_FOUND."""
        async with self._pool.connection() as connection, connection.cursor(row_factory=tuple_row) as cursor:
            row = await (await cursor.execute(QUERIES["find"], {"name": check_subscription(name)})).fetchone()
        if row is None:
            self._ids.pop(name, None)
            raise not_found(name)
        subscription = SubscriptionRow(*row)
        if len(self._ids) >= MAX_IDS:
            self._ids.clear()
        self._ids[name] = subscription.id
        return subscription

    async def find_attached(self, name: str) -> SubscriptionRow:
        """The subscription, or NOT_FOUND, or FAILED_PRECONDITION where it was detached from its topic."""
        subscription = await self.find(name)
        if subscription.detached:
            raise not_possible_now(f"The subscription {name} is detached from its topic: it has no messages any more.")
        return subscription

    async def ensure_own(self, name: str, ack_ids: Sequence[AckId]) -> None:
        """INVALID_ARGUMENT where an ack id is another subscription's, or that of an earlier one of this name."""
        # By what we remember first: an acknowledgement should not cost another query.
        if any(ack_id.subscription_id != self._ids.get(name) for ack_id in ack_ids):
            ensure_ack_ids_of((await self.find(name)).id, ack_ids)

    async def ensure_topic_exists(self, topic: str) -> None:
        async with self._pool.connection() as connection:
            await self._topic_id(connection.cursor(row_factory=tuple_row), topic)

    async def create_subscription(self, request: Proto, call: Call) -> Proto:
        wanted = normalised_subscription(request)
        topic_parts(wanted.topic)
        caller = call.caller
        caller.ensure_may_administer(wanted.name)
        caller.ensure_may_attach(wanted.topic)
        identity = caller.identity
        columns = subscription_columns(wanted)
        async with self._pool.connection() as connection, connection.transaction():
            cursor = connection.cursor(row_factory=tuple_row)
            made = await (await cursor.execute(QUERIES["made_by"], {"made_by": identity.name})).fetchone()
            if made is not None and made[0] >= self._most:
                raise exhausted(f"{identity.name} has made {made[0]} subscriptions; {self._most} are allowed.")
            topic_id = await self._topic_id(cursor, wanted.topic)
            await self._check_dead_letter_topic(cursor, columns, caller)
            parameters = {
                "name": wanted.name,
                "topic": wanted.topic,
                "topic_id": topic_id,
                "made_by": identity.name,
                # Whoever is limited to customers makes subscriptions that are.
                "tenants": None if identity.tenants is None else sorted(identity.tenants),
                **columns,
            }
            row = await (await cursor.execute(QUERIES["create"], parameters)).fetchone()
            if row is None:
                raise already_exists(wanted.name)
            await cursor.execute(QUERIES["start"], {"id": row[0], "topic_id": topic_id})
            await cursor.execute(QUERIES["hold_group"], {"name": wanted.name, "topic_id": topic_id})
        note_without_effect(wanted, [field.name for field, _ in wanted.ListFields()])
        return (await self.find(wanted.name)).proto()

    async def get_subscription(self, request: Proto, call: Call) -> Proto:
        call.caller.ensure_may_see_subscription(check_subscription(request.subscription))
        return (await self.find(request.subscription)).proto()

    async def list_subscriptions(self, request: Proto, call: Call) -> Proto:
        prefix = f"projects/{project_of(request.project)}/subscriptions/"
        limit, after = paging.page_of(request)
        async with self._pool.connection() as connection, connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(QUERIES["list"], {"prefix": prefix, "after": after, "limit": limit + 1})
            rows = [SubscriptionRow(*row) for row in await cursor.fetchall()]
        return ListSubscriptionsResponse(
            subscriptions=[row.proto() for row in rows[:limit] if call.caller.sees_subscription(row.name)],
            next_page_token=paging.token_after([row.name for row in rows], limit),
        )

    async def update_subscription(self, request: Proto, call: Call) -> Proto:
        name = check_subscription(request.subscription.name)
        call.caller.ensure_may_administer(name)
        async with self._pool.connection() as connection, connection.transaction():
            cursor = connection.cursor(row_factory=tuple_row)
            # Locked, so that of two changes at once neither undoes the other.
            await _lock(cursor, name)
            row = await (await cursor.execute(QUERIES["find"], {"name": name})).fetchone()
            if row is None:
                raise not_found(name)
            current = SubscriptionRow(*row)
            call.caller.ensure_may_change(current)
            wanted = changed_subscription(current.proto(), request.subscription, request.update_mask)
            columns = subscription_columns(wanted)
            await self._check_dead_letter_topic(cursor, columns, call.caller)
            await cursor.execute(QUERIES["change"], {"name": name, **columns})
        note_without_effect(wanted, request.update_mask.paths)
        return (await self.find(name)).proto()

    async def delete_subscription(self, request: Proto, call: Call) -> Proto:
        name = check_subscription(request.subscription)
        call.caller.ensure_may_administer(name)
        call.caller.ensure_may_change(await self.find(name))
        async with self._pool.connection() as connection:
            subscription_id = await forget_subscription(connection, name)
        self._wakeups.subscription_has_news(subscription_id)
        return Empty()

    async def seek(self, request: Proto, call: Call) -> Proto:
        name = check_subscription(request.subscription)
        call.caller.ensure_may_administer(name)
        if request.WhichOneof("target") != "time":
            raise invalid("The request has no target to seek to.")
        try:
            moment = request.time.ToDatetime(tzinfo=UTC)
        except (ValueError, OverflowError):
            raise invalid("The time to seek to is out of range.") from None
        subscription = await self.find_attached(name)
        call.caller.ensure_may_change(subscription)
        async with self._pool.connection() as connection:
            with not_found_when_gone(name):
                await connection.execute(QUERIES["seek"], {"name": name, "time": moment})
        return self.sought(subscription)

    def sought(self, subscription: SubscriptionRow) -> Proto:
        """The answer to a Seek that was done: its readers are woken."""
        self._wakeups.subscription_has_news(subscription.id)
        return SeekResponse()

    async def modify_push_config(self, request: Proto, call: Call) -> Proto:
        """Every subscription is for pulling: to ask for that changes nothing."""
        name = check_subscription(request.subscription)
        call.caller.ensure_may_administer(name)
        refuse_push(request.push_config)
        call.caller.ensure_may_change(await self.find(name))
        return Empty()

    async def detach_subscription(self, request: Proto, call: Call) -> Proto:
        """End its connection to its topic, for good."""
        name = check_subscription(request.subscription)
        call.caller.ensure_may_administer(name)
        call.caller.ensure_may_change(await self.find(name))
        async with self._pool.connection() as connection, connection.transaction():
            with not_found_when_gone(name):
                cursor = await connection.execute(QUERIES["detach"], {"name": name})
        row: Any = await cursor.fetchone()
        self._wakeups.subscription_has_news(row[0])
        return DetachSubscriptionResponse()

    async def _topic_id(self, cursor: psycopg.AsyncCursor[Any], topic: str) -> int:
        await cursor.execute(TOPIC_QUERIES["find"], {"log_topic": self._names.log_topic(topic)})
        row = await cursor.fetchone()
        if row is None:
            raise not_found(topic)
        topic_id: int = row[0]
        return topic_id

    async def _check_dead_letter_topic(
        self, cursor: psycopg.AsyncCursor[Any], columns: dict[str, Any], caller: Caller
    ) -> None:
        topic = columns["dead_letter_topic"]
        if not topic:
            return
        if self._names.log_topic(topic) in STAMPED:
            raise invalid(
                f"{topic} takes no dead letters: it would look as if their publishers asked for what they say."
            )
        caller.ensure_may_publish(topic)
        await self._topic_id(cursor, topic)


def ensure_ack_ids_of(subscription_id: int, ack_ids: Iterable[AckId]) -> None:
    """INVALID_ARGUMENT where one is another subscription's."""
    for ack_id in ack_ids:
        if ack_id.subscription_id != subscription_id:
            raise invalid(f"You have passed an ack ID of another subscription to the service (ack_id={ack_id}).")


async def forget_subscription(connection: psycopg.AsyncConnection[Any], name: str) -> int:
    """Delete it, with its leases and where it stood, or NOT_FOUND. Returns the id that it had."""
    async with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
        subscription_id = await _lock(cursor, name)
        await cursor.execute(QUERIES["forget"], {"name": name, "id": subscription_id})
    return subscription_id


async def _lock(cursor: psycopg.AsyncCursor[Any], name: str) -> int:
    with not_found_when_gone(name):
        row = await (await cursor.execute(QUERIES["lock"], {"name": name})).fetchone()
    if row is None:
        raise not_found(name)
    subscription_id: int = row[0]
    return subscription_id
