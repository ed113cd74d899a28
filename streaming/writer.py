"""The writer: puts every device event of `client-manager.writer` into its tenant's tables.

It never waits for a retry: what may succeed later goes to the republisher, and what never can goes to the error topic,
both in the transaction that settles the batch.
"""

from collections.abc import Sequence

from clientmgr.base.errors import TenantUnavailableError, is_permanent
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import DONE, Batch, ConsumerOptions, Dead, Outcome
from clientmgr.contracts import daemons, topics
from streaming.event_writing import EventWriting
from streaming.runtime.awaited_tenants import keep_first_publishing, wait_for_tenant
from streaming.runtime.daemon import Daemon, Services
from streaming.runtime.failures import error_attributes, pass_on


class Writer:
    """Handles batches of `client-manager.writer`."""

    def __init__(self, services: Services) -> None:
        self._writing = EventWriting(services)

    async def __call__(self, batch: Batch) -> Sequence[Outcome] | None:
        failures = await self._writing.write(batch, range(len(batch.messages)))
        if not failures:
            return None
        outcomes: list[Outcome] = [DONE] * len(batch.messages)
        for position, error in failures.items():
            outcomes[position] = settle_failure(batch, position, error)
        return outcomes


def settle_failure(batch: Batch, position: int, error: Exception) -> Outcome:
    message = batch.messages[position]
    if is_permanent(error):
        attributes = {**error_attributes(error), "retryCount": "0"}
        return pass_on(batch, message, topics.WRITER_ERRORS, attributes, error)
    if isinstance(error, TenantUnavailableError):
        attributes = {"retryCount": "1", **keep_first_publishing(message, error)}
        outcome = pass_on(batch, message, topics.REPUBLISHER, attributes, error)
        # No room for the attributes, and nothing is wrong with the message: it waits here, apart from the others.
        return wait_for_tenant(message, error) if isinstance(outcome, Dead) else outcome
    return pass_on(batch, message, topics.REPUBLISHER, {"retryCount": "1"}, error)


def options(settings: Settings) -> ConsumerOptions:
    return ConsumerOptions(
        batch_size=settings.writer_batch_size,
        largest_batch_size=settings.writer_largest_batch_size,
        wait_period_ms=settings.broker_wait_period_ms,
        concurrency=settings.writer_concurrency,
        max_attempts=settings.broker_max_attempts,
    )


DAEMON = Daemon.of(daemons.process("writer"), Writer, options)
