"""Tries held queues again: tenants whose messages failed for a reason that nobody foresaw, and wait apart from others.

The partition is claimed meanwhile, so that nobody adds to its queues. It is let go soon: its other tenants wait for it.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from psycopg import AsyncConnection

from clientmgr.base.errors import ErrorKind
from clientmgr.broker.postgres.claim import Claim, Record
from clientmgr.broker.postgres.consumption import Consumption
from clientmgr.broker.postgres.fallback import Failure, append_of_groups, attempt
from clientmgr.broker.postgres.settlement import send_settle_queue, send_settlement
from clientmgr.broker.settling import SAVEPOINTS_A_COMMIT, Handled, Settlement, passes_erased, pause_after_failure_s

# Begin no other attempt after this: the partition's log waits.
TRY_FOR_S = 0.1


@dataclass
class _Budget:
    """How many attempts a commit may still hold. The first is always made."""

    attempts: int = SAVEPOINTS_A_COMMIT
    ends_at: float = field(default_factory=lambda: time.monotonic() + TRY_FOR_S)

    @property
    def is_spent(self) -> bool:
        return self.attempts <= 0 or (self.attempts < SAVEPOINTS_A_COMMIT and time.monotonic() > self.ends_at)


async def try_queues(context: Consumption, connection: AsyncConnection[Any], claim: Claim) -> None:
    """Try the claim's queues and commit. What there is no time for stays due."""
    started = time.monotonic()
    budget = _Budget()
    parts: list[Handled[Record]] = []
    for queue_id in claim.queues:
        if budget.is_spent:
            break
        parts += await _try_queue(context, connection, claim.queue(queue_id), budget)
    await append_of_groups(context, connection, parts)
    await connection.execute("COMMIT")
    for part in parts:
        context.count(part, started)


async def _try_queue(
    context: Consumption, connection: AsyncConnection[Any], queue: Claim, budget: _Budget
) -> list[Handled[Record]]:
    """The queue as a whole if it can be, else group by group up to the first that has to wait."""
    settled = [record for record in queue.records if passes_erased(record.message.attributes, record.message.data)]
    live = [record for record in queue.records if record not in settled]
    todo = [Claim(queue.partition_id, queue.first_offset, queue.last_offset, live)] if live else []
    parts: list[Handled[Record]] = []
    failed: Claim | None = None
    reason, delay_s = "", 0.0
    # Something has to come of it, however long it takes, or the next look would only repeat this one.
    while todo and not (parts and budget.is_spent):
        part = todo.pop(0)
        budget.attempts -= 1
        handled = await attempt(context, connection, part)
        if isinstance(handled, Failure):
            groups = part.transaction_groups()
            if handled.kind is not ErrorKind.TRANSIENT and len(groups) > 1:
                todo = groups
                continue
            if handled.kind is not ErrorKind.PERMANENT:
                failed, reason = groups[0], handled.reason
                delay_s = pause_after_failure_s(failed.failures + 1)
                parts.append(Handled(Settlement(held=len(failed.records))))
                break
            handled = Handled(Settlement.all_dead(part.records, handled.error))
        await send_settlement(connection, context.subscription, handled.settlement, held=True)
        parts.append(handled)
        settled += part.records
    await send_settle_queue(
        connection,
        queue.queues[0],
        settled,
        failed.records if failed else (),
        failures=failed.failures + 1 if failed else 0,
        reason=reason,
        delay_s=delay_s,
    )
    return parts
