"""The statements that record in the batch's transaction what became of its messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import AsyncConnection

from clientmgr.broker.postgres.claim import QUERIES, Claim, Record, Subscription, quoted
from clientmgr.broker.settling import Settlement, as_text


async def send_settlement(
    connection: AsyncConnection[Any], subscription: Subscription, settlement: Settlement[Record], *, held: bool = False
) -> None:
    """Record the retries and the dead. The messages themselves are copied inside the database, from the log or, if they
    were `held`, from their queue."""
    group = {"group_id": subscription.group_id, "topic_id": subscription.topic_id}
    if settlement.retries:
        retries = group | {"attempts": [retry.attempts(record.message.attempt) for record, retry in settlement.retries]}
        where = _places([record for record, _ in settlement.retries])
        await connection.execute(QUERIES["park_held" if held else "park"], retries | where | settlement.retry_columns())
    if settlement.deaths:
        deaths = group | {"attempts": [record.message.attempt for record, _ in settlement.deaths]}
        where = _places([record for record, _ in settlement.deaths])
        await connection.execute(QUERIES["bury_held" if held else "bury"], deaths | where | settlement.death_columns())


def _places(records: Sequence[Record]) -> dict[str, list[int]]:
    return {"offsets": [record.offset for record in records], "held_ids": [record.held_id for record in records]}


async def send_hold(
    connection: AsyncConnection[Any],
    subscription: Subscription,
    partition_id: int,
    records: Sequence[Record],
    *,
    failures: int = 0,
    reason: str = "",
    delay_s: float = 0.0,
) -> None:
    """Set messages of the log aside in their tenants' queues, in order. A new queue is tried in `delay_s`.

    `failures`: how often they have failed; 0: they only wait behind others.
    """
    if records:
        await connection.execute(
            QUERIES["hold"],
            {
                "group_id": subscription.group_id,
                "topic_id": subscription.topic_id,
                "partition_id": partition_id,
                "offsets": [record.offset for record in records],
                "failures": [failures] * len(records),
                "reason": as_text(reason),
                "delay_s": delay_s,
            },
        )


@dataclass(frozen=True, slots=True)
class QueueResult:
    """What became of a held queue. Empty, it goes; otherwise it is tried again in `delay_s`."""

    queue_id: int
    settled: Sequence[Record]
    failed: Sequence[Record] = ()
    failures: int = 0
    reason: str = ""
    delay_s: float = 0.0


async def send_settle_queues(connection: AsyncConnection[Any], results: Sequence[QueueResult]) -> None:
    """Record what became of held queues."""
    settled = [(one.queue_id, record.held_id) for one in results for record in one.settled]
    failed = [(one.queue_id, record.held_id) for one in results for record in one.failed]
    await connection.execute(
        QUERIES["settle_queues"],
        {
            "queues": [one.queue_id for one in results],
            "failures": [one.failures for one in results],
            "reasons": [as_text(one.reason) for one in results],
            "delays_s": [one.delay_s for one in results],
            "settled_of": [queue_id for queue_id, _ in settled],
            "settled": [held_id for _, held_id in settled],
            "failed_of": [queue_id for queue_id, _ in failed],
            "failed": [held_id for _, held_id in failed],
        },
    )


async def send_advance(
    connection: AsyncConnection[Any],
    subscription: Subscription,
    claim: Claim,
    new_offset: int,
    then: LiteralString = "",
) -> None:
    """Record that everything before `new_offset` is settled. Fails, and the transaction with it, if the claim is lost.

    `then`: statements to follow, like `COMMIT`. All go in one message. They are text because psycopg's pipeline takes
    three times the processor time. When one fails, those after it are not executed.
    """
    place = (subscription.topic_id, claim.partition_id, claim.first_offset, new_offset)
    advance = f"SELECT clientmgr.advance_offset({quoted(subscription.group_id)}, {', '.join(map(str, place))})"
    await connection.execute(f"{advance}; {then}".encode())


async def send_postpone(
    connection: AsyncConnection[Any], subscription: Subscription, failed: Claim, delay_s: float
) -> None:
    """Record a failed attempt at the messages of `failed`; its partition rests for `delay_s`."""
    await connection.execute(
        QUERIES["postpone"],
        {
            "group_id": subscription.group_id,
            "topic_id": subscription.topic_id,
            "partition_id": failed.partition_id,
            "expected_offset": failed.first_offset,
            "failed_through": failed.last_offset,
            "attempts": failed.failures + 1,
            "delay_s": delay_s,
        },
    )
