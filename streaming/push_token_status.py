"""The push-token status updater: the providers' verdicts on tokens, from the push and the web push senders.

A verdict belongs to its token: it counts for whoever set that token no later, also when the token arrives after it, and
also where only the legacy store knows the token.
"""

import dataclasses
import enum
from collections.abc import Sequence

from clientmgr.base.daemon_process import DaemonWork
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import DONE, Batch, ConsumerOptions, Dead, Outcome
from clientmgr.contracts import daemons, topics
from clientmgr.contracts.decoding import (
    InvalidMessageError,
)
from clientmgr.contracts.verdicts import decode_verdict
from clientmgr.devices.store import DeviceStore
from streaming.runtime.daemon import Daemon, Services
from streaming.runtime.retrying import settle_failures
from streaming.runtime.tenant_batches import TenantBatches, Work


class TokenType(enum.StrEnum):
    """Which senders' verdicts are read."""

    PUSH = "push"
    WEB = "web"
    BOTH = "both"


TOKEN_TYPES = {topics.PUSH_TOKEN_STATUS: TokenType.PUSH, topics.WEB_PUSH_TOKEN_STATUS: TokenType.WEB}


class PushTokenStatusUpdater:
    """Handles batches of either topic."""

    def __init__(self, services: Services) -> None:
        self._most_attempts = services.settings.broker_max_attempts
        self._tenants = TenantBatches(services, DeviceStore.from_settings(services.settings).apply_verdicts)

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
        failures = await self._tenants.run(batch, work)
        settle_failures(
            batch,
            outcomes,
            failures,
            most_attempts=self._most_attempts,
            give_up=lambda _batch, _message, error: Dead(str(error), type(error).__name__),
        )
        return outcomes


def daemon(token_type: TokenType) -> Daemon:
    """The updater for one kind of token, or for both at once in one process."""
    process = daemons.process("push-token-status")
    reads = tuple(read for read in process.reads if token_type in (TOKEN_TYPES[read.topic], TokenType.BOTH))
    return Daemon.of(dataclasses.replace(process, reads=reads), PushTokenStatusUpdater, options)


def options(settings: Settings) -> ConsumerOptions:
    return ConsumerOptions(
        batch_size=settings.push_token_status_batch_size,
        linger_ms=settings.push_token_status_wait_ms,
        wait_period_ms=settings.broker_wait_period_ms,
        max_attempts=settings.broker_max_attempts,
    )


def work(settings: Settings, *, token_type: str, burst: bool) -> DaemonWork:
    return daemon(TokenType(token_type)).work(settings, burst=burst)
