"""The statements that record in the batch's transaction what became of its messages."""

from typing import Any, LiteralString

from psycopg import AsyncConnection

from clientmgr.broker.postgres.claim import QUERIES, Claim, Record, Subscription, quoted
from clientmgr.broker.settling import Settlement


async def send_settlement(
    connection: AsyncConnection[Any], subscription: Subscription, settlement: Settlement[Record]
) -> None:
    """Record the retries and the dead. The messages themselves are copied inside the database."""
    group = {"group_id": subscription.group_id, "topic_id": subscription.topic_id}
    if settlement.retries:
        retries = {
            "offsets": [record.offset for record, _ in settlement.retries],
            "attempts": [retry.attempts(record.message.attempt) for record, retry in settlement.retries],
        }
        await connection.execute(QUERIES["park"], group | retries | settlement.retry_columns())
    if settlement.deaths:
        deaths = {
            "offsets": [record.offset for record, _ in settlement.deaths],
            "attempts": [record.message.attempt for record, _ in settlement.deaths],
        }
        await connection.execute(QUERIES["bury"], group | deaths | settlement.death_columns())


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
