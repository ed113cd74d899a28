"""What the transport writes to the database beside the handler's work: retries, dead letters, failed attempts."""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.interface import ReceivedMessage, Retry
from clientmgr.broker.pubsub.wire import storable
from clientmgr.broker.settling import Settlement, passes_erased

QUERIES = named_queries("gateway/queries/transport.sql")
_LARGEST_NUMBER = 2**63 - 1


class Records:
    """One subscription's records. Each method is a statement in the connection's transaction."""

    def __init__(self, subscription: str, topic: str) -> None:
        self._subscription = subscription
        self._topic = topic

    async def attempts(self, connection: AsyncConnection[Any], message_ids: Sequence[str]) -> dict[str, int]:
        """Failed deliveries by message, of those that had any."""
        async with connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(QUERIES["attempts"], self._parameters(message_ids=list(message_ids)))
            return dict(await cursor.fetchall())

    async def count_failures(self, connection: AsyncConnection[Any], message_ids: Sequence[str]) -> None:
        # In one order for everybody: two who count the same messages must not wait for each other.
        await connection.execute(QUERIES["count_failures"], self._parameters(message_ids=sorted(message_ids)))

    async def forget_failures(self, connection: AsyncConnection[Any], message_ids: Sequence[str]) -> None:
        await connection.execute(QUERIES["forget_failures"], self._parameters(message_ids=list(message_ids)))

    async def forget_old_failures(self, connection: AsyncConnection[Any]) -> None:
        """Of messages that nobody delivers any more."""
        await connection.execute(QUERIES["forget_old_failures"])

    async def settle(self, connection: AsyncConnection[Any], settlement: Settlement[ReceivedMessage]) -> None:
        """Keep the retries and the dead."""
        if settlement.retries:
            messages = [message for message, _ in settlement.retries]
            await connection.execute(
                QUERIES["delay"],
                self._parameters(
                    **_columns(messages),
                    **settlement.retry_columns(),
                    topic=self._topic,
                    message_ids=[message.message_id for message in messages],
                ),
            )
        if settlement.deaths:
            messages = [message for message, _ in settlement.deaths]
            await connection.execute(
                QUERIES["bury"],
                self._parameters(
                    **_columns(messages),
                    **settlement.death_columns(),
                    topic=self._topic,
                    numbers=[_number(message.message_id) for message in messages],
                ),
            )

    async def take_due(self, connection: AsyncConnection[Any], limit: int) -> list[ReceivedMessage]:
        """Retries whose time has come; they are gone if the transaction commits."""
        async with connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(QUERIES["take_due"], self._parameters(limit=limit))
            rows = await cursor.fetchall()
        messages = [self._message(row) for row in rows]
        return [one for one in messages if not passes_erased(one.attributes, one.data)]

    async def take(self, connection: AsyncConnection[Any], message_id: str) -> ReceivedMessage | None:
        """One waiting retry, due or not. None: it is gone, erased, or in other hands."""
        async with connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(QUERIES["take"], self._parameters(message_id=message_id))
            row = await cursor.fetchone()
        message = None if row is None else self._message(row)
        return None if message is None or passes_erased(message.attributes, message.data) else message

    async def put_back(self, connection: AsyncConnection[Any], message: ReceivedMessage, delay_s: float) -> None:
        await self.settle(connection, Settlement(retries=[(message, Retry(delay_s))]))

    async def postpone(self, connection: AsyncConnection[Any], message_ids: Sequence[str], delay_s: float) -> None:
        await connection.execute(QUERIES["postpone"], self._parameters(message_ids=list(message_ids), delay_s=delay_s))

    async def next_due_s(self, connection: AsyncConnection[Any]) -> float | None:
        """Seconds until the next retry is due; None when none waits."""
        async with connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(QUERIES["next_due"], self._parameters())
            row = await cursor.fetchone()
        return None if row is None else row[0]

    def _message(self, row: tuple[Any, ...]) -> ReceivedMessage:
        message_id, attempts, tenant, key, data, attributes, published_at = row
        return ReceivedMessage(self._topic, message_id, data, tenant, key, attributes, attempts + 1, published_at)

    def _parameters(self, **more: Any) -> dict[str, Any]:
        return {"subscription": self._subscription, **more}


def _columns(messages: Sequence[ReceivedMessage]) -> dict[str, list[Any]]:
    return {
        "attempts": [message.attempt for message in messages],
        "host_ids": [storable(message.tenant) for message in messages],
        "user_ids": [storable(message.key) for message in messages],
        "payloads": [message.data for message in messages],
        "attributes": [
            msgspec.json.encode(
                {storable(name): storable(value) for name, value in message.attributes.items()}
            ).decode()
            for message in messages
        ],
        "published_at": [message.published_at for message in messages],
    }


def _number(message_id: str) -> int:
    """A message's number in the dead letters. Google's ids and the gateway's are numbers; others are made into one."""
    if message_id.isascii() and message_id.isdecimal() and int(message_id) <= _LARGEST_NUMBER:
        return int(message_id)
    return int.from_bytes(hashlib.sha256(message_id.encode()).digest()[:8]) & _LARGEST_NUMBER
