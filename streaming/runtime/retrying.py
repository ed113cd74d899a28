"""For workers without a republisher: what may succeed later comes again; the worker says how to give up the rest."""

from collections.abc import Callable

from clientmgr.base.backoff import backoff_s
from clientmgr.base.errors import ErrorKind, TenantUnavailableError, classify
from clientmgr.broker.interface import Batch, Outcome, ReceivedMessage, Retry
from streaming.runtime.awaited_tenants import wait_for_tenant
from streaming.runtime.tenant_batches import Failures

GiveUp = Callable[[Batch, ReceivedMessage, Exception], Outcome]


def settle_failures(
    batch: Batch, outcomes: list[Outcome], failures: Failures, *, most_attempts: int, give_up: GiveUp
) -> None:
    """Put each failure's outcome in its place.

    An error that nobody foresaw is final at the last attempt, however the earlier ones had failed.
    """
    for position, error in failures.items():
        message = batch.messages[position]
        if isinstance(error, TenantUnavailableError):
            outcomes[position] = wait_for_tenant(message, error)
            continue
        kind = classify(error)
        hopeless = kind is ErrorKind.UNFORESEEN and message.attempt >= most_attempts
        if kind is ErrorKind.PERMANENT or hopeless:
            outcomes[position] = give_up(batch, message, error)
        else:
            outcomes[position] = Retry(backoff_s(message.attempt), f"{type(error).__name__}: {error}")
