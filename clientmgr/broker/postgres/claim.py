"""A claimed batch as it comes from the log: its messages, their transaction groups, and where the partition stands.

Pure data and one query; what is done with a batch is decided in `consumer` and `fallback`.
"""

import functools
import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import tuple_row
from psycopg.sql import Literal

from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.interface import ReceivedMessage
from clientmgr.broker.settling import passes_erased

QUERIES = named_queries("broker/queries/consume.sql")

# Columns of claim_batch.
_OFFSET, _MORE, _QUEUE_ID, _HELD_ID = 2, -3, -2, -1
_NO_ATTRIBUTES: Final = MappingProxyType[str, str]({})


@dataclass(frozen=True, slots=True)
class Subscription:
    """Who reads what. `group_id` is the subscription's name."""

    group_id: str
    topic: str
    topic_id: int


class Record(Struct, frozen=True, gc=False):
    """A message and its place in the log. A Struct, as messages are: it costs a ninth of a dataclass to create."""

    offset: int
    tx_last_offset: int
    """The last offset of the transaction that published it; the same for all of one group, and for no other."""
    failures: int
    """Deliveries that ended in an exception, of its batch or of its own."""
    message: ReceivedMessage
    queue_id: int | None = None
    """The held queue of its tenant, if there is one."""
    held_id: int = 0
    """Its place in that queue. 0: it is in the log, and has to wait behind the queue."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What one look at a partition found. The partition is ours until the transaction ends."""

    partition_id: int
    first_offset: int
    """Where the group stood."""
    last_offset: int
    """The last offset looked at. No `records`: there were only other groups' retries or erased messages."""
    records: Sequence[Record]
    rows: int = 0
    """How many messages were looked at: `records`, and what is passed."""
    more_elsewhere: bool = False
    """Whether another partition, which nobody in this process has in hand, has something to read as well."""
    behind: Sequence[Record] = ()
    """Messages of held tenants, met in the log: they are not handled now but wait in their tenants' queues."""
    queues: Sequence[int] = ()
    """The held queues that are tried. Empty: this is a claim of the log, and moves the offset."""

    @property
    def messages(self) -> list[ReceivedMessage]:
        return [record.message for record in self.records]

    @property
    def failures(self) -> int:
        """How often its handler has failed so far: the count of the message that failed most."""
        return max((record.failures for record in self.records), default=0)

    def transaction_groups(self) -> list["Claim"]:
        """The claim in parts, one for each transaction that published, in their order."""
        groups = []
        first_offset = self.first_offset
        for last_offset, records in itertools.groupby(self.records, key=lambda record: record.tx_last_offset):
            groups.append(Claim(self.partition_id, first_offset, last_offset, list(records)))
            first_offset = last_offset + 1
        return groups

    def queue(self, queue_id: int) -> "Claim":
        """Of a claim of held queues: the part that is one queue's."""
        records = [record for record in self.records if record.queue_id == queue_id]
        return Claim(self.partition_id, self.first_offset, self.last_offset, records, queues=[queue_id])


async def send_claim(
    connection: AsyncConnection[Any],
    subscription: Subscription,
    *,
    batch_size: int,
    only_partition: int | None = None,
    after_partition: int = -1,
    in_hand: Collection[int] = (),
    held_first: bool = False,
    begin: bool = False,
) -> AsyncCursor[tuple[Any, ...]]:
    """Send the query that claims a partition, and with it the held queues of its tenants.

    `held_first`: try queues that are due before the log is read on; otherwise they have to wait until it is read.
    `begin`: begin the transaction with it. Both go in one message, as text: a look often finds nothing, and saving a
    round trip saves a fifth of the time from a message to its handler.
    """
    if begin:
        cursor = connection.cursor(row_factory=tuple_row)
        partitions = ",".join(map(str, in_hand))
        only = "NULL" if only_partition is None else str(only_partition)
        group = quoted(subscription.group_id)
        await cursor.execute(
            f"BEGIN; SELECT * FROM clientmgr.claim_batch({group}, {subscription.topic_id},"
            f" {only}, {after_partition}, {batch_size}, '{{{partitions}}}', {held_first})"
            f" WHERE NOT EXISTS (SELECT FROM clientmgr.paused_subscriptions WHERE group_id = {group})".encode()
        )
        cursor.nextset()
        return cursor
    cursor = connection.cursor(binary=True, row_factory=tuple_row)
    return await cursor.execute(
        QUERIES["claim"],
        {
            "group_id": subscription.group_id,
            "topic_id": subscription.topic_id,
            "only_partition": only_partition,
            "after_partition": after_partition,
            "batch_size": batch_size,
            "in_hand": list(in_hand),
            "held_first": held_first,
        },
    )


@functools.lru_cache(maxsize=256)
def quoted(text: str) -> str:
    """As an SQL literal, for statements that are sent as text."""
    return Literal(text).as_string()


async def read_claim(cursor: AsyncCursor[tuple[Any, ...]], topic: str) -> Claim | None:
    """The claim that `send_claim` asked for; None when there was nothing to claim."""
    rows = await cursor.fetchall()
    if not rows:
        return None
    partition_id, first_offset = rows[0][:2]
    records: list[Record] = []
    behind: list[Record] = []
    is_log = rows[0][_HELD_ID] is None and rows[0][_OFFSET] is not None
    for row in rows:
        (
            _,
            _,
            offset,
            tx_last,
            message_id,
            tenant,
            key,
            data,
            attributes,
            attempt,
            failures,
            published,
            _,
            queue,
            held,
        ) = row
        if data is None or (is_log and attributes and passes_erased(attributes, data)):
            continue
        received = ReceivedMessage(
            topic, str(message_id), data, tenant, key, attributes or _NO_ATTRIBUTES, attempt, published
        )
        if queue is None:
            records.append(Record(offset, tx_last, failures, received))
        else:
            (behind if is_log else records).append(Record(offset, tx_last, failures, received, queue, held or 0))
    if is_log:
        return Claim(partition_id, first_offset, rows[-1][_OFFSET], records, len(rows), rows[-1][_MORE], behind)
    queues = list(dict.fromkeys(row[_QUEUE_ID] for row in rows))
    return Claim(partition_id, first_offset, first_offset - 1, records, len(rows), more_elsewhere=True, queues=queues)
