"""The republisher: tries again what the writer could not write, at most five times, then passes it to the error topic.

A message carries its `retryCount`; when it is due follows from that, its id and its publish time, so that no restart
can lose or repeat a wait. One that is not due yet is put aside and delays nobody. So is one whose customer is not
active yet: that is no failed attempt, and its `retryCount` stays.
"""

import time
import zlib
from collections.abc import Sequence

from clientmgr.base.backoff import backoff_s
from clientmgr.base.errors import TenantUnavailableError, is_permanent
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import DONE, Batch, ConsumerOptions, Outcome, ReceivedMessage, Retry
from clientmgr.contracts import daemons, topics
from streaming.event_writing import EventWriting
from streaming.runtime.awaited_tenants import wait_for_tenant
from streaming.runtime.daemon import Daemon, Services
from streaming.runtime.failures import error_attributes, pass_on

MOST_RETRIES = 5


class Republisher:
    """Handles batches of `client-manager.republisher`."""

    def __init__(self, services: Services) -> None:
        self._writing = EventWriting(services)

    async def __call__(self, batch: Batch) -> Sequence[Outcome]:
        outcomes: list[Outcome] = [DONE] * len(batch.messages)
        due = []
        now = time.time()
        for position, message in enumerate(batch.messages):
            wait_s = due_at(message) - now
            if wait_s > 0:
                outcomes[position] = Retry(wait_s, "not due yet", is_attempt=False)
            else:
                due.append(position)
        for position, error in (await self._writing.write(batch, due)).items():
            outcomes[position] = settle_failure(batch, position, error)
        return outcomes


def settle_failure(batch: Batch, position: int, error: Exception) -> Outcome:
    message = batch.messages[position]
    if isinstance(error, TenantUnavailableError):
        return wait_for_tenant(message, error)
    retries = retry_count(message)
    if is_permanent(error) or retries >= MOST_RETRIES:
        attributes = {**error_attributes(error), "retryCount": str(retries)}
        return pass_on(batch, message, topics.WRITER_ERRORS, attributes, error)
    return pass_on(batch, message, topics.REPUBLISHER, {"retryCount": str(retries + 1)}, error)


def retry_count(message: ReceivedMessage) -> int:
    """The message's count. A value that we did not write counts as the first retry or as the last."""
    text = message.attributes.get("retryCount", "1")
    return min(max(int(text), 1), MOST_RETRIES) if text.isascii() and text.isdigit() else 1


def due_at(message: ReceivedMessage) -> float:
    """When to try the message. Its jitter is drawn from its id, so the answer is always the same."""
    draw = zlib.crc32(message.message_id.encode()) / 2**32
    return message.published_at.timestamp() + backoff_s(retry_count(message), draw=draw)


def options(settings: Settings) -> ConsumerOptions:
    return ConsumerOptions(
        batch_size=settings.writer_batch_size,
        wait_period_ms=settings.broker_wait_period_ms,
        max_attempts=settings.broker_max_attempts,
    )


DAEMON = Daemon.of(daemons.process("republisher"), Republisher, options)
