"""What becomes of a batch, decided the same way for both transports: done, again later, or dead.

Each transport writes the decision down in its own tables; nothing here does I/O but the handler itself.
"""

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar

from psycopg.pq import TransactionStatus

from clientmgr.base.backoff import backoff_s
from clientmgr.base.errors import ClientManagerError, ErrorKind, classify
from clientmgr.base.logs import get_logger
from clientmgr.broker.batch import TransactionBatch
from clientmgr.broker.erased import is_erased
from clientmgr.broker.interface import ConsumeStats, Dead, Done, Handler, Message, Outcome, Retry
from clientmgr.broker.message_metrics import ERASED_PASSED, SubscriptionMetrics

log = get_logger(__name__)

# A burst waits for what is due again by then, and leaves what is due later.
BURST_PATIENCE_S = 1.0
# More than 64 savepoints in a transaction no longer fit into a backend's shared cache, and every reader gets slow.
SAVEPOINTS_A_COMMIT = 32
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 15.0
MAX_REASON_CHARACTERS = 4000

Item = TypeVar("Item")
"""What a transport has in hand for a message: a record of the log, or the received message itself."""


class TransactionEndedError(RuntimeError):
    """A handler's mistake that would cost exactly-once. It ends `consume`: no retry and no dead letter mends it."""


class HandlerEndedError(ClientManagerError):
    """A handler raised what is no `Exception`: a library called `sys.exit()`, or a task of its own was cancelled."""


class HandlerTimeoutError(ClientManagerError):
    """A handler took longer than `ConsumerOptions.handler_timeout_s`. Nobody foresaw it: the batch is taken apart."""


@dataclass(frozen=True, slots=True)
class Settlement(Generic[Item]):
    """Which messages come again and which are dead. All others are done."""

    done: int = 0
    retries: Sequence[tuple[Item, Retry]] = ()
    deaths: Sequence[tuple[Item, Dead]] = ()
    held: int = 0
    """Messages that failed for a reason that nobody foresaw, and come again before their tenant's later ones."""

    @classmethod
    def of(cls, items: Sequence[Item], outcomes: Sequence[Outcome] | None) -> Self:
        if outcomes is None:
            return cls(len(items))
        if len(outcomes) != len(items):
            raise TypeError(f"the handler gave {len(outcomes)} outcomes for {len(items)} messages")
        retries: list[tuple[Item, Retry]] = []
        deaths: list[tuple[Item, Dead]] = []
        for item, outcome in zip(items, outcomes, strict=True):
            if isinstance(outcome, Retry):
                retries.append((item, outcome))
            elif isinstance(outcome, Dead):
                deaths.append((item, outcome))
            elif not isinstance(outcome, Done):
                raise TypeError(f"the handler gave {outcome!r:.80} for a message, which is no outcome")
        return cls(len(items) - len(retries) - len(deaths), retries, deaths)

    @classmethod
    def all_dead(cls, items: Sequence[Item], error: Exception) -> Self:
        verdict = Dead(str(error) or type(error).__name__, type(error).__name__)
        return cls(deaths=[(item, verdict) for item in items])

    @property
    def shortest_delay_s(self) -> float | None:
        return min((retry.delay_s for _, retry in self.retries), default=None)

    def retry_columns(self) -> dict[str, list[float] | list[str]]:
        """When the retries are due and why, as parameters of the statement that keeps them."""
        return {
            "delays_s": [max(0.0, retry.delay_s) for _, retry in self.retries],
            "reasons": [as_text(retry.reason) for _, retry in self.retries],
        }

    def death_columns(self) -> dict[str, list[str]]:
        """Why the dead are dead, as parameters of the statement that keeps them."""
        return {
            "error_classes": [as_text(dead.error_class) for _, dead in self.deaths],
            "exceptions": [as_text(dead.reason) for _, dead in self.deaths],
        }


@dataclass(frozen=True, slots=True)
class Handled(Generic[Item]):
    """What a handler that did not fail leaves to be written down."""

    settlement: Settlement[Item]
    publications: Mapping[str, Sequence[Message]] = field(default_factory=dict)

    @classmethod
    def together(cls, parts: Sequence["Handled[Item]"]) -> "Handled[Item]":
        """Several as one, in their order."""
        settlements = [part.settlement for part in parts]
        publications: dict[str, list[Message]] = {}
        for part in parts:
            for topic, messages in part.publications.items():
                publications.setdefault(topic, []).extend(messages)
        settlement = Settlement(
            sum(one.done for one in settlements),
            [retry for one in settlements for retry in one.retries],
            [death for one in settlements for death in one.deaths],
            sum(one.held for one in settlements),
        )
        return Handled(settlement, publications)


async def call_handler(
    handler: Handler, batch: TransactionBatch, items: Sequence[Item], *, timeout_s: float | None = None
) -> Handled[Item]:
    """Call the handler inside the batch's transaction and check its answer. `items` are the batch's messages."""
    try:
        async with asyncio.timeout(timeout_s) as limit:
            outcomes = await _ended_as_an_exception(handler(batch))
    except TimeoutError:
        if not limit.expired():
            raise
    if limit.expired():  # also when the handler took no notice
        raise HandlerTimeoutError(f"the handler took longer than {timeout_s:g} s for {len(items)} messages")
    if batch.connection.info.transaction_status is TransactionStatus.IDLE:
        raise TransactionEndedError("the handler ended the batch's transaction; it may only use savepoints")
    return Handled(Settlement.of(items, outcomes), batch.publications)


async def _ended_as_an_exception(answer: Awaitable[Sequence[Outcome] | None]) -> Sequence[Outcome] | None:
    """Otherwise one message whose handler says `sys.exit()` would end every consumer that meets it."""
    try:
        return await answer
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise  # it is we who are cancelled
        raise HandlerEndedError(f"the handler ended with {error!r}") from error
    except BaseException as error:
        raise HandlerEndedError(f"the handler ended with {error!r}") from error


@dataclass(frozen=True)
class Ledger:
    """The account of one `consume` call: what was settled, and the verdict on what failed."""

    topic: str
    subscription: str
    max_attempts: int
    metrics: SubscriptionMetrics
    stats: ConsumeStats = field(default_factory=ConsumeStats)

    @classmethod
    def open(cls, topic: str, subscription: str, max_attempts: int) -> Self:
        return cls(topic, subscription, max_attempts, SubscriptionMetrics(topic, subscription))

    def judge(self, error: Exception, *, messages: int, failures: int, **place: int) -> ErrorKind:
        """What becomes of messages that failed. TRANSIENT: all come again as they are. Otherwise one of them is to
        blame. It is found by taking the batch apart; then UNFORESEEN means that it comes again while others go on, and
        PERMANENT that it is dead.

        `failures` counts how often they have failed, this time included. `place` is for the log.
        """
        kind = classify(error)
        self.metrics.failed(kind.value)
        log.warning(
            "batch failed",
            topic=self.topic,
            subscription=self.subscription,
            **place,
            messages=messages,
            failures=failures,
            kind=kind.value,
            error_type=type(error).__name__,
            error=str(error),
            # Once: what is tried again fails in the same place, and others wait while a traceback is written.
            exc_info=error if kind is ErrorKind.UNFORESEEN and failures == 1 else None,
        )
        if kind is ErrorKind.UNFORESEEN and failures >= self.max_attempts:
            return ErrorKind.PERMANENT
        return kind

    def count(self, settlement: Settlement[Item], started: float) -> None:
        """Count what has been committed, as one batch. `started`: when work on it began, by the monotonic clock."""
        done, retried, dead = settlement.done, len(settlement.retries), len(settlement.deaths)
        self.stats.done += done
        self.stats.retried += retried + settlement.held
        self.stats.dead += dead
        self.stats.batches += 1
        tried = sum(retry.is_attempt for _, retry in settlement.retries)
        self.metrics.settled(
            done=done,
            retried=tried + settlement.held,
            put_off=retried - tried,
            dead=dead,
            seconds=time.monotonic() - started,
        )

    def put_off(self, messages: int) -> None:
        """Count messages that were met, and wait behind others of their tenant."""
        if messages:
            self.metrics.put_off(messages)


def passes_erased(attributes: Mapping[str, str], data: bytes) -> bool:
    """Whether a reader passes the message without handling it, as it does with one that was erased."""
    if not is_erased(attributes, data):
        return False
    ERASED_PASSED.inc()
    return True


def pause_after_failure_s(failures: int, *, first_s: float = FIRST_PAUSE_S) -> float:
    """How long messages wait that come again. `failures` counts how often they have failed, this time included."""
    return backoff_s(failures, first_s=first_s, longest_s=LONGEST_PAUSE_S)


def as_text(reason: str) -> str:
    """What a text column can hold of an error's message, which may quote anything."""
    return reason[:MAX_REASON_CHARACTERS].replace("\0", "\\0").encode(errors="backslashreplace").decode()
