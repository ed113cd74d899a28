"""The Subscriber service's calls about subscriptions themselves: create, get, list, update, delete, seek."""

from datetime import UTC, datetime
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
    subscription_columns,
)
from clientmgr.broker.gateway.names import Names, check_subscription, project_of, topic_parts
from clientmgr.broker.gateway.pool import Pool
from clientmgr.broker.gateway.protos import Empty, ListSubscriptionsResponse, Proto, SeekResponse
from clientmgr.broker.gateway.refusals import (
    already_exists,
    exhausted,
    invalid,
    not_found,
    not_found_when_gone,
    unimplemented,
)
from clientmgr.broker.gateway.rpc import Call
from clientmgr.broker.gateway.wakeups import Wakeups
from clientmgr.contracts.publishers import STAMPED

QUERIES = named_queries("gateway/queries/subscriptions.sql")
TOPIC_QUERIES = named_queries("gateway/queries/topics.sql")


class Subscriptions:
    """Subscriptions in the database, and the calls that manage them."""

    def __init__(self, pool: Pool, names: Names, wakeups: Wakeups, most: int) -> None:
        """`most`: subscriptions that a caller may make."""
        self._pool = pool
        self._names = names
        self._wakeups = wakeups
        self._most = most

    async def find(self, name: str) -> SubscriptionRow:
        """The subscription, or NOT_FOUND."""
        async with self._pool.connection() as connection, connection.cursor(row_factory=tuple_row) as cursor:
            row = await (await cursor.execute(QUERIES["find"], {"name": check_subscription(name)})).fetchone()
        if row is None:
            raise not_found(name)
        return SubscriptionRow(*row)

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
        if request.WhichOneof("target") == "snapshot":
            raise unimplemented("Seeking to a snapshot")
        if request.WhichOneof("target") != "time":
            raise invalid("The request has no target to seek to.")
        try:
            moment = request.time.ToDatetime(tzinfo=UTC)
        except (ValueError, OverflowError):
            raise invalid("The time to seek to is out of range.") from None
        subscription = await self.find(name)
        call.caller.ensure_may_change(subscription)
        await self._seek(subscription, moment)
        return SeekResponse()

    async def _seek(self, subscription: SubscriptionRow, moment: datetime) -> None:
        async with self._pool.connection() as connection:
            with not_found_when_gone(subscription.name):
                await connection.execute(QUERIES["seek"], {"name": subscription.name, "time": moment})
        self._wakeups.subscription_has_news(subscription.id)

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
