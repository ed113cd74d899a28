"""Takes a failed batch apart: each transaction group again by itself, behind a savepoint, so that only the group that
can't be handled is set aside. Errors that may pass end it early: what was handled until then is kept.
"""

import time
from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection

from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.claim import Claim, Record, read_claim, send_claim
from clientmgr.broker.postgres.consumption import Consumption
from clientmgr.broker.postgres.publish import append_each, in_lock_order
from clientmgr.broker.postgres.settlement import send_advance, send_postpone, send_settlement
from clientmgr.broker.postgres.topic_administration import require_topics
from clientmgr.broker.settling import (
    SAVEPOINTS_A_COMMIT,
    Handled,
    Settlement,
    TransactionEndedError,
    pause_after_failure_s,
)


async def take_apart(context: Consumption, connection: AsyncConnection[Any], failed: Claim) -> None:
    """Handle the groups of `failed` one by one. No transaction is open before or after."""
    more = True
    while more:
        await connection.execute("BEGIN")
        cursor = await send_claim(
            connection,
            context.subscription,
            batch_size=context.options.batch_size,
            only_partition=failed.partition_id,
        )
        claim = await read_claim(cursor, context.subscription.topic)
        if claim is None or claim.first_offset > failed.last_offset:
            # Another consumer was quicker and goes on from here.
            await connection.execute("ROLLBACK")
            return
        more = await _handle_some_groups(context, connection, claim)


async def _handle_some_groups(context: Consumption, connection: AsyncConnection[Any], claim: Claim) -> bool:
    """Handle up to SAVEPOINTS_A_COMMIT groups and commit. False: one of them must wait, and the partition with it."""
    started = time.monotonic()
    groups = claim.transaction_groups()
    committed: list[Handled[Record]] = []
    publications: dict[str, list[Sequence[Message]]] = {}
    new_offset = claim.first_offset
    waiting: Claim | None = None
    for group in groups[:SAVEPOINTS_A_COMMIT]:
        handled = await _handle_group(context, connection, group)
        if handled is None:
            waiting = group
            break
        await send_settlement(connection, context.subscription, handled.settlement)
        committed.append(handled)
        for topic, messages in handled.publications.items():
            publications.setdefault(topic, []).append(messages)
        new_offset = group.last_offset + 1
    if len(committed) == len(groups):
        new_offset = claim.last_offset + 1
    for topic in in_lock_order(publications):
        await append_each(connection, topic, publications[topic], cut_off_ms=context.cut_off_ms)
    if waiting is None:
        await send_advance(connection, context.subscription, claim, new_offset, "COMMIT")
    else:
        await send_advance(connection, context.subscription, claim, new_offset)
        rest = Claim(claim.partition_id, new_offset, waiting.last_offset, waiting.records)
        await send_postpone(connection, context.subscription, rest, pause_after_failure_s(waiting.failures + 1))
        await connection.execute("COMMIT")
    for one in committed:
        context.count(one, started)
    return waiting is None


async def _handle_group(context: Consumption, connection: AsyncConnection[Any], group: Claim) -> Handled[Record] | None:
    """None: the group may succeed later. What a failed handler did in the database is undone."""
    await connection.execute("SAVEPOINT transaction_group")
    try:
        handled = await context.handle(connection, group)
        # A deferred constraint would fail only at COMMIT, and would take the other groups with it.
        await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        await require_topics(connection, list(handled.publications))
        await connection.execute("RELEASE SAVEPOINT transaction_group")
    except TransactionEndedError:
        raise
    except Exception as error:
        if connection.closed:
            raise
        await connection.execute("ROLLBACK TO SAVEPOINT transaction_group")
        await connection.execute("RELEASE SAVEPOINT transaction_group")
        if context.can_recover(error, group):
            return None
        return Handled(Settlement.all_dead(group.records, error))
    return handled
