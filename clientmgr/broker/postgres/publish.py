"""Puts messages into the log inside the caller's transaction. The caller decides when to commit.

`stage` leaves them to the COMMIT: nothing is locked before. `append` and its siblings append at once, for those who do
it as the last thing before their COMMIT: from then on everyone else who publishes to the topic waits for it.
"""

import contextlib
import hashlib
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
from clientmgr.broker.postgres.grouping import by_tenant, has_delays, is_special, refuse_mixed
from clientmgr.contracts.topics import SHARED

T = TypeVar("T")

QUERIES = named_queries("broker/queries/publish.sql")

# Below these an INSERT is quicker than a COPY, which takes two more round trips.
INSERT_MAX_MESSAGES = 300
INSERT_MAX_BYTES = 1024 * 1024
# What is staged at a time: one value of PostgreSQL can't have a gigabyte.
STAGE_MAX_MESSAGES = 5000
STAGE_MAX_BYTES = 32 * 1024 * 1024


class UnknownTopicError(PermanentError):
    """No such topic exists."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic} does not exist: `clientmgr topics` lists those that do")
        self.topic = topic


class PublishRefusedError(PermanentError):
    """The transaction can't publish: its isolation level, or a process that is older than the database."""


@dataclass(frozen=True, slots=True)
class Append:
    """Messages for one topic, and how they are grouped in its log."""

    topic: str
    messages: Sequence[Message]
    group_sizes: Sequence[int]
    """Lengths of the transaction groups."""
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
        ids = [uuid.uuid4() for _ in sizes] if 1 < len(sizes) < len(messages) else None
        return {
            "topic": self.topic,
            "count": len(messages),
            "own_transaction_id": ids[0] if ids else uuid.uuid4(),
            "each_alone": len(sizes) == len(messages),
            "cut_off_ms": self.cut_off_ms,
            "group_id": self.group_id,
            **_columns(messages),
            "transaction_ids": list(_repeated(ids, sizes)) if ids else None,
            "last_positions": list(_repeated(itertools.accumulate(sizes), sizes)) if ids else None,
        }


async def stage(connection: AsyncConnection[Any], topic: str, messages: Sequence[Message]) -> None:
    """Publish with the connection's transaction. Its COMMIT appends them; until then nobody waits for it."""
    portions = list(_portions(messages))
    # In autocommit mode they would be as many transactions.
    async with connection.transaction() if len(portions) > 1 else contextlib.nullcontext():
        for portion in portions:
            special = is_special(portion)
            parameters = {
                "topic": topic,
                **_columns(portion),
                "deliver_ats": [message.deliver_at for message in portion] if special else None,
                "key_digests": [_digest(message.dedup_key) for message in portion] if special else None,
            }
            with errors_named():
                await connection.execute(QUERIES["stage"], parameters)


async def append(
    connection: AsyncConnection[Any],
    topic: str,
    messages: Sequence[Message],
    *,
    group_id: str | None = None,
    cut_off_ms: int | None = None,
) -> None:
    """Append `messages` in the connection's transaction, a transaction group for each tenant.

    `group_id`: only this group sees them. `cut_off_ms`: the server ends the session if the transaction then stays idle
    for longer.
    """
    if group_id is None and is_special(messages):
        await append_each(connection, topic, [messages], cut_off_ms=cut_off_ms)
    else:
        await append_transactions(connection, topic, by_tenant(messages), group_id=group_id, cut_off_ms=cut_off_ms)


async def append_transactions(
    connection: AsyncConnection[Any],
    topic: str,
    transactions: Sequence[Sequence[Message]],
    *,
    group_id: str | None = None,
    cut_off_ms: int | None = None,
) -> range:
    """Append several transaction groups at once, each of one tenant. Returns their messages' offsets, in this order."""
    for transaction in transactions:
        refuse_mixed(topic, transaction)
    messages = list(itertools.chain.from_iterable(transactions))
    sizes = [len(transaction) for transaction in transactions if transaction]
    return await execute(connection, Append(topic, messages, sizes, group_id, cut_off_ms))


async def append_to_topics(
    connection: AsyncConnection[Any],
    messages_by_topic: Mapping[str, Sequence[Message]],
    *,
    cut_off_ms: int | None = None,
) -> None:
    """Append to several topics, in the order that everybody uses."""
    for topic in in_lock_order(messages_by_topic):
        await append(connection, topic, messages_by_topic[topic], cut_off_ms=cut_off_ms)


async def append_each(
    connection: AsyncConnection[Any],
    topic: str,
    publications: Sequence[Sequence[Message]],
    *,
    cut_off_ms: int | None = None,
) -> None:
    """Append several publications at once. Each keeps its own groups, one for each tenant."""
    for_later = [one for one in publications if has_delays(one)]
    at_once = [one for one in publications if not has_delays(one)] if for_later else publications
    if any(map(is_special, publications)):
        async with connection.transaction():
            at_once = await _with_new_keys(connection, topic, at_once)
            await _append_now(connection, topic, at_once, cut_off_ms)
            for one in for_later:
                await stage(connection, topic, one)
                with errors_named():
                    await connection.execute(QUERIES["append_staged"].encode())
    else:
        await _append_now(connection, topic, at_once, cut_off_ms)


async def _append_now(
    connection: AsyncConnection[Any], topic: str, publications: Sequence[Sequence[Message]], cut_off_ms: int | None
) -> None:
    groups = [group for one in publications for group in by_tenant(one) if group]
    if groups:
        await append_transactions(connection, topic, groups, cut_off_ms=cut_off_ms)


async def _with_new_keys(
    connection: AsyncConnection[Any], topic: str, publications: Sequence[Sequence[Message]]
) -> Sequence[Sequence[Message]]:
    """The publications without messages whose dedup key was published before. The keys of the others are noted."""
    digests = [_digest(message.dedup_key) for one in publications for message in one]
    if not any(digests):
        return publications
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(QUERIES["note_keys"], {"topic": topic, "digests": digests})
        is_known, positions = await anext(cursor)
    if not is_known:
        raise UnknownTopicError(topic)
    new, place = set(positions), itertools.count(1)
    numbered = [[(next(place), message) for message in one] for one in publications]
    return [[message for at, message in one if message.dedup_key is None or at in new] for one in numbered]


def in_lock_order(topics: Iterable[str]) -> list[str]:
    """The order in which everybody appends to several topics, so that no two transactions wait for each other.

    `clientmgr.is_locked_last` says the same in SQL.

    An append locks its topic until the commit. Topics that many others publish to come last: a large batch then locks
    them only while it appends there and commits, not while it appends all its other messages.
    """
    return sorted(topics, key=lambda topic: (topic in SHARED, topic))


async def execute(connection: AsyncConnection[Any], request: Append) -> range:
    """Do what `request` says and return the messages' offsets."""
    if not request.messages:
        return range(0)
    with errors_named():
        if request.is_small:
            async with connection.cursor(row_factory=tuple_row) as cursor:
                await cursor.execute(QUERIES["append_rows"], request.insert_parameters())
                (first,) = await anext(cursor)
            return range(first, first + len(request.messages))
        # Without a transaction around both, the counter's lock would end before the COPY begins.
        async with connection.transaction():
            return await _copy(connection, request)


@contextlib.contextmanager
def errors_named() -> Iterator[None]:
    """Turn the database's refusals into our own."""
    try:
        yield
    except psycopg.errors.NoDataFound as error:
        raise UnknownTopicError(error.diag.message_detail or "?") from error
    except psycopg.errors.FeatureNotSupported as error:
        hint = error.diag.message_hint
        raise PublishRefusedError(f"{error.diag.message_primary}{f'. {hint}' if hint else ''}") from error


async def _copy(connection: AsyncConnection[Any], request: Append) -> range:
    count, sizes = len(request.messages), request.group_sizes
    host_ids = list({message.tenant for message in request.messages})
    own_ids = [uuid.uuid4() for _ in sizes]
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(
            QUERIES["reserve"],
            {
                "topic": request.topic,
                "count": count,
                "own_transaction_id": own_ids[0],
                "cut_off_ms": request.cut_off_ms,
                "host_ids": host_ids,
            },
        )
        topic_id, first, published_at_us, partitions = await anext(cursor)
        async with cursor.copy(QUERIES["copy_rows"]) as copy:
            for piece in copy_rows(
                request.messages,
                first_offset=first,
                topic_id=topic_id,
                published_at_us=published_at_us,
                partition_of=dict(zip(host_ids, partitions, strict=True)),
                transaction_ids=_repeated([own.bytes for own in own_ids], sizes),
                last_offsets=_repeated((first - 1 + position for position in itertools.accumulate(sizes)), sizes),
                group_id=request.group_id,
            ):
                await copy.write(piece)
    return range(first, first + count)


def _columns(messages: Sequence[Message]) -> dict[str, Any]:
    """What each message brings, as arrays."""
    has_attributes = any(message.attributes for message in messages)
    return {
        "host_ids": [message.tenant for message in messages],
        "user_ids": [message.key for message in messages],
        "payloads": [message.data for message in messages],
        "attributes": [_attributes_text(message) for message in messages] if has_attributes else None,
    }


def _portions(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """In the order of the messages, each small enough for one statement."""
    begin = size = 0
    for position, message in enumerate(messages):
        if position > begin and (position - begin == STAGE_MAX_MESSAGES or size + len(message.data) > STAGE_MAX_BYTES):
            yield messages[begin:position]
            begin, size = position, 0
        size += len(message.data)
    if len(messages) > begin:
        yield messages[begin:]


def _digest(key: str | None) -> bytes | None:
    """What is remembered of a dedup key, which may name a customer's contact or order."""
    return None if key is None else hashlib.sha256(key.encode()).digest()


def _attributes_text(message: Message) -> str | None:
    return msgspec.json.encode(message.attributes).decode() if message.attributes else None


def _repeated(values: Iterable[T], counts: Iterable[int]) -> Iterable[T]:
    """Each value as often as its count says."""
    return itertools.chain.from_iterable(map(itertools.repeat, values, counts))
