"""Takes a failed batch apart: each transaction group again by itself, behind a savepoint. A group that can't be handled
is dead, one that failed for a reason that nobody foresaw is set aside, and the rest is done. Errors that concern
everybody end it early: what was handled until then is kept.
"""

import time
from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection

from clientmgr.base.errors import ErrorKind
from clientmgr.broker.postgres.attempts import Attempts, Failure
from clientmgr.broker.postgres.claim import Claim, Record, read_claim, send_claim
from clientmgr.broker.postgres.consumption import Consumption
from clientmgr.broker.postgres.halving import Halving
from clientmgr.broker.postgres.settlement import send_advance, send_hold, send_postpone
from clientmgr.broker.settling import Handled, Settlement, pause_after_failure_s


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


async def _handle_some_groups(
    context: Consumption, connection: AsyncConnection[Any], claim: Claim, known: Failure | None
) -> bool:
    """Make as many attempts as a transaction may hold, and commit. False: all of the partition must wait.

    `known`: what came of the first group.
    """
    started = time.monotonic()
    attempts = Attempts(context, connection)
    behind = list(claim.behind)
    failed: list[tuple[Claim, Failure]] = []
    held_tenants: set[str] = set()
    new_offset = claim.first_offset
    waiting: Claim | None = None
    halving = Halving(claim.transaction_groups(), first_is_known=known is not None)
    while not halving.is_done and not attempts.are_spent:
        some = halving.next_part()
        part, late = _divided(_joined(some), held_tenants)
        if part.records:
            tried, known = known or await attempts.attempt(part), None
            if not isinstance(tried, Failure):
                halving.succeeded()
            elif tried.kind is ErrorKind.TRANSIENT:
                waiting = part
                break
            elif len(some) > 1:
                halving.failed(some)
                continue
            elif tried.kind is ErrorKind.UNFORESEEN:
                failed.append((part, tried))
                held_tenants |= {record.message.tenant for record in part.records if record.message.tenant}
                tried = Handled(Settlement(held=len(part.records)))
            else:
                tried = Handled(Settlement.all_dead(part.records, tried.error))
            attempts.parts.append(tried)
        behind += late
        new_offset = some[-1].last_offset + 1
    if waiting is None and halving.is_done:
        new_offset = claim.last_offset + 1
    behind = [record for record in behind if record.offset < new_offset]
    await attempts.record()
    await _hold(context, connection, claim.partition_id, failed)
    await send_hold(connection, context.subscription, claim.partition_id, behind)
    await send_advance(connection, context.subscription, claim, new_offset, "" if waiting else "COMMIT")
    if waiting is not None:
        rest = Claim(claim.partition_id, new_offset, waiting.last_offset, waiting.records)
        await send_postpone(connection, context.subscription, rest, pause_after_failure_s(waiting.failures + 1))
        await connection.execute("COMMIT")
    attempts.count(started)
    context.ledger.put_off(len(behind))
    return waiting is None


async def _hold(
    context: Consumption, connection: AsyncConnection[Any], partition_id: int, failed: Sequence[tuple[Claim, Failure]]
) -> None:
    """Set groups aside, those that failed alike in one statement. A group without a tenant has a queue of its own."""
    alike: dict[tuple[int, str, int], list[Record]] = {}
    for group, failure in failed:
        own = 0 if group.records[0].message.tenant else group.first_offset + 1
        alike.setdefault((group.failures + 1, failure.reason, own), []).extend(group.records)
    for (failures, reason, _), records in alike.items():
        await send_hold(
            connection,
            context.subscription,
            partition_id,
            records,
            failures=failures,
            reason=reason,
            delay_s=pause_after_failure_s(failures),
        )


def _begins_with(claim: Claim, group: Claim) -> bool:
    """Whether the claim's first group is still the one that failed."""
    first = claim.transaction_groups()[:1]
    return bool(first) and [record.offset for record in first[0].records] == [record.offset for record in group.records]


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
