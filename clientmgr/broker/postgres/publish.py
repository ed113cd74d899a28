"""Appends messages to the log inside the caller's transaction. The caller decides when to commit.

Publish late: from the first append on, everyone else who publishes to the topic waits for the transaction to end.
"""

import contextlib
import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import psycopg
from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from clientmgr.base.errors import PermanentError
from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.copy_rows import copy_rows
from clientmgr.contracts.topics import SHARED

T = TypeVar("T")

QUERIES = named_queries("broker/queries/publish.sql")

# Below these an INSERT is quicker than a COPY, which takes two more round trips.
INSERT_MAX_MESSAGES = 300
INSERT_MAX_BYTES = 1024 * 1024


class UnknownTopicError(PermanentError):
    """No such topic exists."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic} does not exist: make it with ensure_topic, or check its name")
        self.topic = topic


@dataclass(frozen=True, slots=True)
class Append:
    """Messages for one topic, and how they are grouped in its log."""

    topic: str
    messages: Sequence[Message]
    group_sizes: Sequence[int] | None = None
    """Lengths of the transaction groups. None: one group with all else that this database transaction appends."""
    group_id: str | None = None
    cut_off_ms: int | None = None

    @property
    def is_small(self) -> bool:
        """Whether an INSERT, which takes one round trip, is quicker than a COPY."""
        return (
            len(self.messages) <= INSERT_MAX_MESSAGES
            and sum(len(message.data) for message in self.messages) <= INSERT_MAX_BYTES
        )

    def insert_parameters(self) -> dict[str, Any]:
        """For the query `append_rows`."""
        messages, sizes = self.messages, self.group_sizes
        transaction_ids = last_positions = None
        if sizes is not None:
            transaction_ids = list(_repeated([uuid.uuid4() for _ in sizes], sizes))
            last_positions = list(_repeated(itertools.accumulate(sizes), sizes))
        has_attributes = any(message.attributes for message in messages)
        return {
            "topic": self.topic,
            "count": len(messages),
            "own_transaction_id": transaction_ids[0] if transaction_ids else None,
            "cut_off_ms": self.cut_off_ms,
            "group_id": self.group_id,
            "host_ids": [message.tenant for message in messages],
            "user_ids": [message.key for message in messages],
            "payloads": [message.data for message in messages],
            "attributes": [_attributes_text(message) for message in messages] if has_attributes else None,
            "transaction_ids": transaction_ids,
            "last_positions": last_positions,
        }


async def append(
    connection: AsyncConnection[Any],
    topic: str,
    messages: Sequence[Message],
    *,
    group_id: str | None = None,
    cut_off_ms: int | None = None,
) -> range:
    """Append `messages` in the connection's transaction and return their offsets, in the messages' order.

    Everything that one database transaction appends to a topic is one transaction group. `group_id`: only this group
    sees them. `cut_off_ms`: the server ends the session if the transaction then stays idle for longer.
    """
    return await execute(connection, Append(topic, messages, None, group_id, cut_off_ms))


async def append_transactions(
    connection: AsyncConnection[Any],
    topic: str,
    transactions: Sequence[Sequence[Message]],
    *,
    group_id: str | None = None,
    cut_off_ms: int | None = None,
) -> range:
    """Append several transaction groups at once, each with a transaction id of its own."""
    messages = list(itertools.chain.from_iterable(transactions))
    sizes = [len(transaction) for transaction in transactions if transaction]
    return await execute(connection, Append(topic, messages, sizes, group_id, cut_off_ms))


async def append_to_topics(
    connection: AsyncConnection[Any],
    messages_by_topic: Mapping[str, Sequence[Message]],
    *,
    cut_off_ms: int | None = None,
) -> dict[str, range]:
    """Append to several topics, in the order that everybody uses."""
    return {
        topic: await append(connection, topic, messages_by_topic[topic], cut_off_ms=cut_off_ms)
        for topic in in_lock_order(messages_by_topic)
    }


def in_lock_order(topics: Iterable[str]) -> list[str]:
    """The order in which everybody appends to several topics, so that no two transactions wait for each other.

    An append locks its topic until the commit. Topics that many others publish to come last: a large batch then locks
    them only while it appends there and commits, not while it appends all its other messages.
    """
    return sorted(topics, key=lambda topic: (topic in SHARED, topic))


async def execute(connection: AsyncConnection[Any], request: Append) -> range:
    """Do what `request` says and return the messages' offsets."""
    if not request.messages:
        return range(0)
    with unknown_topic_named():
        if request.is_small:
            async with connection.cursor(row_factory=tuple_row) as cursor:
                await cursor.execute(QUERIES["append_rows"], request.insert_parameters())
                (first,) = await anext(cursor)
            return range(first, first + len(request.messages))
        # Without a transaction around both, the counter's lock would end before the COPY begins.
        async with connection.transaction():
            return await _copy(connection, request)


@contextlib.contextmanager
def unknown_topic_named() -> Iterator[None]:
    """Turn the database's error about a missing topic into our own."""
    try:
        yield
    except psycopg.errors.NoDataFound as error:
        raise UnknownTopicError(error.diag.message_detail or "?") from error


async def _copy(connection: AsyncConnection[Any], request: Append) -> range:
    count, sizes = len(request.messages), request.group_sizes
    host_ids = list({message.tenant for message in request.messages})
    own_ids = None if sizes is None else [uuid.uuid4() for _ in sizes]
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(
            QUERIES["reserve"],
            {
                "topic": request.topic,
                "count": count,
                "own_transaction_id": own_ids[0] if own_ids else None,
                "cut_off_ms": request.cut_off_ms,
                "host_ids": host_ids,
            },
        )
        topic_id, first, transaction_id, published_at_us, partitions = await anext(cursor)
        offsets = range(first, first + count)
        partition_of = dict(zip(host_ids, partitions, strict=True))
        if own_ids is None or sizes is None:
            id_bytes: Iterable[bytes] = itertools.repeat(transaction_id.bytes, count)
            lasts: Iterable[int] = itertools.repeat(offsets[-1], count)
        else:
            id_bytes = _repeated([own.bytes for own in own_ids], sizes)
            lasts = _repeated((first - 1 + position for position in itertools.accumulate(sizes)), sizes)
        async with cursor.copy(QUERIES["copy_rows"]) as copy:
            for piece in copy_rows(
                request.messages,
                first_offset=first,
                topic_id=topic_id,
                published_at_us=published_at_us,
                partition_of=partition_of,
                transaction_ids=id_bytes,
                last_offsets=lasts,
                group_id=request.group_id,
            ):
                await copy.write(piece)
    return offsets


def _attributes_text(message: Message) -> str | None:
    return msgspec.json.encode(message.attributes).decode() if message.attributes else None


def _repeated(values: Iterable[T], counts: Iterable[int]) -> Iterable[T]:
    """Each value as often as its count says."""
    return itertools.chain.from_iterable(map(itertools.repeat, values, counts))
