"""Takes a failed batch apart: each transaction group again by itself, behind a savepoint. A group that can't be handled
is dead, one that failed for a reason that nobody foresaw is set aside, and the rest is done. Errors that concern
everybody end it early: what was handled until then is kept.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from clientmgr.base.errors import ErrorKind
from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.claim import Claim, Record, read_claim, send_claim
from clientmgr.broker.postgres.consumption import Consumption
from clientmgr.broker.postgres.publish import append_each, in_lock_order
from clientmgr.broker.postgres.settlement import send_advance, send_hold, send_postpone, send_settlement
from clientmgr.broker.postgres.topic_administration import require_topics
from clientmgr.broker.settling import (
    SAVEPOINTS_A_COMMIT,
    Handled,
    Settlement,
    TransactionEndedError,
    pause_after_failure_s,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that failed. What the handler did in the database is undone."""

    error: Exception
    kind: ErrorKind

    @property
    def reason(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"


async def take_apart(context: Consumption, connection: AsyncConnection[Any], failed: Claim, failure: Failure) -> None:
    """Handle the groups of `failed` one by one. No transaction is open before or after."""
    # A single group is to blame by itself: there is no need to try it once more.
    known = failure if len(failed.transaction_groups()) == 1 else None
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
        if claim is None or claim.queues or not failed.first_offset <= claim.first_offset <= failed.last_offset:
            # Another consumer was quicker and goes on from here, or the group was moved.
            await connection.execute("ROLLBACK")
            return
        if known is not None and not _begins_with(claim, failed):
            known = None
        more = await _handle_some_groups(context, connection, claim, known)
        known = None


async def attempt(context: Consumption, connection: AsyncConnection[Any], part: Claim) -> Handled[Record] | Failure:
    """Handle a part of a claim behind a savepoint."""
    await connection.execute("SAVEPOINT transaction_group")
    try:
        handled = await context.handle(connection, part)
        if handled.publications:
            await require_topics(connection, list(handled.publications))
        # A deferred constraint would fail only at COMMIT, and would take the other groups with it.
        await connection.execute("SET CONSTRAINTS ALL IMMEDIATE; RELEASE SAVEPOINT transaction_group")
    except TransactionEndedError:
        raise
    except Exception as error:
        if connection.closed:
            raise
        await connection.execute("ROLLBACK TO SAVEPOINT transaction_group; RELEASE SAVEPOINT transaction_group")
        return Failure(error, context.judge(error, part))
    return handled


async def append_of_groups(
    context: Consumption, connection: AsyncConnection[Any], parts: Sequence[Handled[Record]]
) -> None:
    """Publish what the parts left to be published, each as a transaction of its own."""
    publications: dict[str, list[Sequence[Message]]] = {}
    for part in parts:
        for topic, messages in part.publications.items():
            publications.setdefault(topic, []).append(messages)
    for topic in in_lock_order(publications):
        await append_each(connection, topic, publications[topic], cut_off_ms=context.cut_off_ms)


async def _handle_some_groups(
    context: Consumption, connection: AsyncConnection[Any], claim: Claim, known: Failure | None
) -> bool:
    """Make up to SAVEPOINTS_A_COMMIT attempts and commit. False: all of the partition must wait.

    What fails is halved until a single group is to blame, so that few bad ones cost few attempts. `known`: what came of
    the first group.
    """
    started = time.monotonic()
    groups = claim.transaction_groups()
    behind = list(claim.behind)
    held_tenants: set[str] = set()
    parts: list[Handled[Record]] = []
    new_offset = claim.first_offset
    waiting: Claim | None = None
    attempts = 0
    todo = [groups[:1], groups[1:]] if known else _halves(groups)
    while todo and attempts < SAVEPOINTS_A_COMMIT:
        some = todo.pop(0)
        if not some:
            continue
        part, late = _divided(_joined(some), held_tenants)
        if part.records:
            attempts += 1
            tried, known = known or await attempt(context, connection, part), None
            if isinstance(tried, Failure) and tried.kind is not ErrorKind.TRANSIENT and len(some) > 1:
                todo[:0] = _halves(some)
                continue
            handled = await _settle_group(context, connection, part, tried)
            if handled is None:
                waiting = part
                break
            parts.append(handled)
            if handled.settlement.held:
                held_tenants |= {record.message.tenant for record in part.records if record.message.tenant}
        behind += late
        new_offset = some[-1].last_offset + 1
    if waiting is None and not any(todo):
        new_offset = claim.last_offset + 1
    behind = [record for record in behind if record.offset < new_offset]
    await send_hold(connection, context.subscription, claim.partition_id, behind)
    await append_of_groups(context, connection, parts)
    if waiting is None:
        await send_advance(connection, context.subscription, claim, new_offset, "COMMIT")
    else:
        await send_advance(connection, context.subscription, claim, new_offset)
        rest = Claim(claim.partition_id, new_offset, waiting.last_offset, waiting.records)
        await send_postpone(connection, context.subscription, rest, pause_after_failure_s(waiting.failures + 1))
        await connection.execute("COMMIT")
    for one in parts:
        context.count(one, started)
    context.ledger.put_off(len(behind))
    return waiting is None


async def _settle_group(
    context: Consumption, connection: AsyncConnection[Any], group: Claim, handled: Handled[Record] | Failure
) -> Handled[Record] | None:
    """Record what became of a group. None: it and all behind it must wait."""
    if isinstance(handled, Failure):
        if handled.kind is ErrorKind.TRANSIENT:
            return None
        if handled.kind is ErrorKind.UNFORESEEN:
            failures = group.failures + 1
            await send_hold(
                connection,
                context.subscription,
                group.partition_id,
                group.records,
                failures=failures,
                reason=handled.reason,
                delay_s=pause_after_failure_s(failures),
            )
            return Handled(Settlement(held=len(group.records)))
        handled = Handled(Settlement.all_dead(group.records, handled.error))
    await send_settlement(connection, context.subscription, handled.settlement)
    return handled


def _begins_with(claim: Claim, group: Claim) -> bool:
    """Whether the claim's first group is still the one that failed."""
    first = claim.transaction_groups()[:1]
    return bool(first) and [record.offset for record in first[0].records] == [record.offset for record in group.records]


def _halves(groups: list[Claim]) -> list[list[Claim]]:
    middle = (len(groups) + 1) // 2
    return [groups[:middle], groups[middle:]]


def _joined(groups: Sequence[Claim]) -> Claim:
    """Groups that follow each other, as one claim."""
    records = [record for group in groups for record in group.records]
    return Claim(groups[0].partition_id, groups[0].first_offset, groups[-1].last_offset, records)


def _divided(group: Claim, held_tenants: set[str]) -> tuple[Claim, list[Record]]:
    """What can be handled now, and what has to wait behind a group of its tenant that failed just before."""
    late = [record for record in group.records if record.message.tenant in held_tenants]
    if not late:
        return group, late
    free = [record for record in group.records if record.message.tenant not in held_tenants]
    return Claim(group.partition_id, group.first_offset, group.last_offset, free), late
