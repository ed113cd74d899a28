"""Tries held queues again: tenants whose messages failed for a reason that nobody foresaw, and wait apart from others.

The partition is claimed meanwhile, so that nobody adds to its queues. It is let go soon: its other tenants wait for it.
"""

import time
from typing import Any

from psycopg import AsyncConnection

from clientmgr.base.errors import ErrorKind
from clientmgr.broker.postgres.attempts import Attempts, Failure
from clientmgr.broker.postgres.claim import Claim, Record
from clientmgr.broker.postgres.consumption import Consumption
from clientmgr.broker.postgres.settlement import QueueResult, send_settle_queues
from clientmgr.broker.settling import Handled, Settlement, passes_erased, pause_after_failure_s

# Begin no other attempt after this: the partition's log waits.
TRY_FOR_S = 0.1


class _Trial:
    """What comes of the queues of one claim."""

    def __init__(self, context: Consumption, connection: AsyncConnection[Any]) -> None:
        self.attempts = Attempts(context, connection)
        self.results: list[QueueResult] = []
        self.failing_s = 0.0
        self._ends_at = time.monotonic() + TRY_FOR_S

    @property
    def is_over(self) -> bool:
        """The first attempt is always made."""
        return self.attempts.are_spent or (self.attempts.any_made and time.monotonic() > self._ends_at)

    async def attempt(self, part: Claim) -> Handled[Record] | Failure:
        started = time.monotonic()
        tried = await self.attempts.attempt(part)
        if isinstance(tried, Failure):
            self.failing_s += time.monotonic() - started
        return tried


async def try_queues(context: Consumption, connection: AsyncConnection[Any], claim: Claim) -> float:
    """Try the claim's queues and commit. What there is no time for stays due.

    Returns the seconds that were spent on attempts that failed.
    """
    started = time.monotonic()
    trial = _Trial(context, connection)
    for queue_id in claim.queues:
        if trial.is_over:
            break
        await _try_queue(trial, claim.queue(queue_id))
    await trial.attempts.record(held=True)
    await send_settle_queues(connection, trial.results)
    await connection.execute("COMMIT")
    trial.attempts.count(started)
    return trial.failing_s


async def _try_queue(trial: _Trial, queue: Claim) -> None:
    """The queue as a whole if it can be, else group by group up to the first that has to wait."""
    settled = [record for record in queue.records if passes_erased(record.message.attributes, record.message.data)]
    live = [record for record in queue.records if record not in settled]
    todo = [Claim(queue.partition_id, queue.first_offset, queue.last_offset, live)] if live else []
    parts = trial.attempts.parts
    before = len(parts)
    failed: Claim | None = None
    reason = ""
    # Something has to come of it, however long it takes, or the next look would only repeat this one.
    while todo and not (len(parts) > before and trial.is_over):
        part = todo.pop(0)
        handled = await trial.attempt(part)
        if isinstance(handled, Failure):
            groups = part.transaction_groups()
            if handled.kind is not ErrorKind.TRANSIENT and len(groups) > 1:
                todo = groups
                continue
            if handled.kind is not ErrorKind.PERMANENT:
                failed, reason = groups[0], handled.reason
                parts.append(Handled(Settlement(held=len(failed.records))))
                break
            handled = Handled(Settlement.all_dead(part.records, handled.error))
        parts.append(handled)
        settled += part.records
    result = QueueResult(queue.queues[0], settled)
    if failed is not None:
        failures = failed.failures + 1
        pause_s = pause_after_failure_s(failures)
        result = QueueResult(queue.queues[0], settled, failed.records, failures, reason, pause_s)
    trial.results.append(result)
