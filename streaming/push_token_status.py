"""The push-token status updater: the providers' verdicts on tokens, from the push and the web push senders.

A verdict changes nothing if the device has replaced the token since, or set it after the verdict was given.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import AsyncConnection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.broker.interface import DONE, Batch, ConsumerOptions, Dead, Outcome
from clientmgr.contracts import topics
from clientmgr.contracts.decoding import (
    InvalidMessageError,
)
from clientmgr.contracts.verdicts import Verdict, decode_verdict
from clientmgr.devices.store import apply_verdicts
from streaming.runtime.daemon import Daemon, Services, Source
from streaming.runtime.retrying import settle_failures
from streaming.runtime.tenant_batches import TenantBatches, Work


class TokenType(enum.StrEnum):
    """Which senders' verdicts are read."""

    PUSH = "push"
    WEB = "web"
    BOTH = "both"


class PushTokenStatusUpdater:
    """Handles batches of either topic."""

    def __init__(self, services: Services) -> None:
        self._most_attempts = services.settings.broker_max_attempts
        self._tenants = TenantBatches(
            services.tenants, write_verdicts, lock_timeout_ms=services.settings.writer_lock_timeout_ms
        )

    async def __call__(self, batch: Batch) -> Sequence[Outcome]:
        outcomes: list[Outcome] = [DONE] * len(batch.messages)
        work = []
        for position, message in enumerate(batch.messages):
            try:
                customer_id, verdict = decode_verdict(message.topic, message.data)
            except InvalidMessageError as error:
                outcomes[position] = Dead(str(error), type(error).__name__)
            else:
                work.append(Work(position, customer_id, verdict))
        failures = await self._tenants.run(batch.connection, work)
        settle_failures(
            batch,
            outcomes,
            failures,
            most_attempts=self._most_attempts,
            give_up=lambda _batch, _message, error: Dead(str(error), type(error).__name__),
        )
        return outcomes


async def write_verdicts(connection: AsyncConnection[Any], verdicts: Mapping[CustomerId, Sequence[Verdict]]) -> None:
    for customer_id, of_tenant in verdicts.items():
        await apply_verdicts(connection, customer_id, of_tenant)


def daemon(token_type: TokenType) -> Daemon:
    """The updater for one kind of token, or for both at once in one process."""
    read = {
        TokenType.PUSH: [topics.PUSH_TOKEN_STATUS],
        TokenType.WEB: [topics.WEB_PUSH_TOKEN_STATUS],
        TokenType.BOTH: [topics.PUSH_TOKEN_STATUS, topics.WEB_PUSH_TOKEN_STATUS],
    }[token_type]

    def sources(services: Services) -> list[Source]:
        settings = services.settings
        options = ConsumerOptions(
            batch_size=settings.push_token_status_batch_size,
            linger_ms=settings.push_token_status_wait_ms,
            wait_period_ms=settings.broker_wait_period_ms,
            max_attempts=settings.broker_max_attempts,
        )
        return [Source(topic, PushTokenStatusUpdater(services), options) for topic in read]

    return Daemon("push-token-status", sources)
