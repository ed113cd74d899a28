"""Moves messages that were delivered too often to the dead-letter topic of their subscription, in one transaction."""

from typing import Any

import psycopg
from psycopg.rows import tuple_row

from clientmgr.base.logs import get_logger
from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.gateway.configuration import SubscriptionRow
from clientmgr.broker.gateway.names import Names
from clientmgr.broker.gateway.pool import Pool
from clientmgr.broker.gateway.refusals import not_found_when_gone
from clientmgr.broker.gateway.wakeups import Wakeups
from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.publish import append_transactions

log = get_logger(__name__)

QUERIES = named_queries("gateway/queries/leases.sql")
SUBSCRIPTION_QUERIES = named_queries("gateway/queries/subscriptions.sql")
TOPIC_QUERIES = named_queries("gateway/queries/topics.sql")

# Google's names for the attributes that tell a dead letter's history.
SOURCE = "CloudPubSubDeadLetterSource"


class DeadLetters:
    """Called before each claim, and by maintenance for subscriptions that nobody reads."""

    def __init__(self, pool: Pool, names: Names, wakeups: Wakeups) -> None:
        self._pool = pool
        self._names = names
        self._wakeups = wakeups

    async def forward(self, subscription: SubscriptionRow) -> int | None:
        """Forward messages without attempts left. Returns the number of deliveries from which on claims skip a message.

        None, which means delivery for ever, if there is no dead-letter policy or its topic is gone, as with Google.
        """
        limit = subscription.max_delivery_attempts
        if subscription.dead_letter_topic is None or limit is None:
            return None
        parameters = {"id": subscription.id, "topic_id": subscription.topic_id, "attempt_limit": limit}
        async with self._pool.connection() as connection:
            cursor = connection.cursor(row_factory=tuple_row)
            row = await (await cursor.execute(QUERIES["any_exhausted"], parameters)).fetchone()
            if row is None or not row[0]:
                return limit
            log_topic = self._names.log_topic(subscription.dead_letter_topic)
            target = await (await cursor.execute(TOPIC_QUERIES["find"], {"log_topic": log_topic})).fetchone()
            if target is None:
                log.warning("dead-letter topic is missing", topic=subscription.dead_letter_topic)
                return None
            async with connection.transaction():
                with not_found_when_gone(subscription.name):
                    await cursor.execute(SUBSCRIPTION_QUERIES["lock"], {"name": subscription.name})
                moved = await self._move(connection, subscription, log_topic, parameters)
        if moved:
            log.info("forwarded to the dead-letter topic", subscription=subscription.name, messages=moved)
            self._wakeups.topic_has_news(target[0])
        return limit

    async def _move(
        self,
        connection: psycopg.AsyncConnection[Any],
        subscription: SubscriptionRow,
        log_topic: str,
        parameters: dict[str, Any],
    ) -> int:
        cursor = connection.cursor(row_factory=tuple_row)
        rows = await (await cursor.execute(QUERIES["exhausted"], parameters)).fetchall()
        if not rows:
            return 0
        _, project, _, short_name = subscription.name.split("/")
        letters = [
            Message(
                payload,
                host_id,
                user_id,
                {
                    **attributes,
                    f"{SOURCE}DeliveryCount": str(attempt),
                    f"{SOURCE}Subscription": short_name,
                    f"{SOURCE}SubscriptionProject": project,
                    f"{SOURCE}TopicPublishTime": published_at.isoformat(),
                },
            )
            for _, attempt, host_id, user_id, payload, attributes, published_at, _ in rows
        ]
        removed = {"id": subscription.id, "offsets": [row[0] for row in rows]}
        await cursor.execute(QUERIES["remove"], removed)
        await cursor.execute(QUERIES["promote"], {"id": subscription.id, "keys": [row[7] for row in rows]})
        # Last: from here on others who publish to the dead-letter topic wait for us.
        await append_transactions(connection, log_topic, [(letter,) for letter in letters])
        return len(letters)
