"""Publishes found contact deletions in bulk; a customer's watermark moves in the transaction that publishes.

A contact's id goes in that transaction too: what stays, to know a row that is read again, is a keyed hash.

On the PostgreSQL log a deletion is published exactly once. On Pub/Sub it is sent before the transaction commits, so
that a crash in between sends it again, with the same event id.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from psycopg import AsyncConnection, Connection

from clientmgr.base.arrays import bigint_array
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.sqlfiles import named_queries
from clientmgr.base.stopping import StillWanted, always_wanted, ensure_wanted
from clientmgr.broker.interface import Broker, Message
from clientmgr.contracts.topics import CONTACT_DELETION

_QUERIES = named_queries("contact_deletions/queries/contact_deletions.sql")
_NAMESPACE = uuid.UUID("5f9c3a52-6a3e-4d0c-9b43-0d6f6a2c6f11")
MESSAGES_A_TRANSACTION = 10_000


@dataclass(frozen=True, slots=True)
class Published:
    """Progress: how many deletions of a customer are published."""

    customer_id: CustomerId
    messages: int


def deletion_message(customer_id: CustomerId, contact_id: int, deleted_at: datetime) -> Message:
    """The message for the worker. The same deletion always has the same event id."""
    millis = int(deleted_at.timestamp() * 1000)
    body = {
        "eventId": str(uuid.uuid5(_NAMESPACE, f"{customer_id}:{contact_id}:{millis}")),
        "customerId": customer_id,
        "contactId": contact_id,
        "deletedAt": millis,
    }
    return Message(msgspec.json.encode(body), tenant=str(customer_id), key=str(contact_id))


async def publish_deletions(
    broker: Broker,
    database: Database,
    customers: Sequence[CustomerId],
    *,
    overlap: timedelta,
    batch_size: int = MESSAGES_A_TRANSACTION,
    on_progress: Callable[[Published], None] = lambda _: None,
    still_wanted: StillWanted = always_wanted,
) -> dict[CustomerId, int]:
    """Publish the deletions of these customers that are not yet published. Returns how many, by customer.

    Stopped, it raises before the next batch. What it published by then is published, and the watermark is there.
    """
    published: dict[CustomerId, int] = {}
    await broker.ensure_topic(CONTACT_DELETION)
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        waiting = await connection.execute(_QUERIES["unpublished"], {"customers": list(customers)})
        for customer_id, _ in await waiting.fetchall():
            while True:
                ensure_wanted(still_wanted, f"{sum(published.values())} deletions are published")
                count = await _publish_batch(broker, connection, customer_id, batch_size)
                if not count:
                    break
                published[customer_id] = published.get(customer_id, 0) + count
                on_progress(Published(customer_id, published[customer_id]))
            behind = {"customer_id": customer_id, "overlap_seconds": overlap.total_seconds()}
            await connection.execute(_QUERIES["forget_published"], behind)
        await connection.execute(_QUERIES["forget_left_behind"])
    return published


def watermarks(connection: Connection[Any], customers: Sequence[CustomerId]) -> dict[CustomerId, datetime | None]:
    """Up to where each customer's deletions are published. None: none were."""
    rows = connection.execute(_QUERIES["watermarks"], {"customers": list(customers)})
    return {CustomerId(customer_id): deleted_at for customer_id, deleted_at in rows}


def unpublished(connection: Connection[Any], customers: Sequence[CustomerId] | None = None) -> dict[CustomerId, int]:
    """How many deletions wait to be published, by customer. Without `customers`: of all."""
    rows = connection.execute(_QUERIES["unpublished"], {"customers": None if customers is None else list(customers)})
    return {CustomerId(customer_id): count for customer_id, count in rows}


def ahead_of_the_clock(connection: Connection[Any]) -> dict[CustomerId, int]:
    """How many deletions wait that say they happen in the future, by customer."""
    return {CustomerId(customer_id): count for customer_id, count in connection.execute(_QUERIES["ahead_of_the_clock"])}


async def _publish_batch(broker: Broker, connection: AsyncConnection[Any], customer_id: CustomerId, limit: int) -> int:
    async with connection.transaction():
        taken = await connection.execute(_QUERIES["take"], {"customer_id": customer_id, "limit": limit})
        rows = await taken.fetchall()
        if not rows:
            return 0
        done = {
            "customer_id": customer_id,
            "contact_ids": bigint_array(contact_id for contact_id, _ in rows),
            "deleted_ats": [deleted_at for _, deleted_at in rows],
        }
        await connection.execute(_QUERIES["mark_published"], done)
        moved = {"customer_id": customer_id, "deleted_at": rows[-1][1], "published": len(rows)}
        await connection.execute(_QUERIES["move_watermark"], moved)
        # Last: from here on the transaction holds up everyone else who publishes to the topic.
        messages = [deletion_message(customer_id, contact_id, deleted_at) for contact_id, deleted_at in rows]
        await broker.publish(CONTACT_DELETION, messages, connection=connection)
    return len(rows)
