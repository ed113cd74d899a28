"""What a worker knows of messages: what it receives, what it answers, what it publishes. Nothing here does I/O.

A batch is handled inside one database transaction. On the PostgreSQL log the claim, the handler's writes and what it
publishes commit together: exactly once. On Pub/Sub the transaction commits first, then what was published is sent, then
the messages are acknowledged: at least once, harmless for a handler whose writes are idempotent.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec
from msgspec import Struct
from psycopg import AsyncConnection

from clientmgr.base.errors import InvalidInputError

MAX_ATTRIBUTES = 100
MAX_ATTRIBUTE_KEY_BYTES = 256
MAX_ATTRIBUTE_VALUE_BYTES = 1024

FIRST_PUBLISHED_AT = "firstPublishedAt"
"""Attribute of a message that was passed on and waits for its customer: when it was first published, in epoch ms."""


class Message(Struct, frozen=True, gc=False):
    """A message to publish. Messages of one tenant keep their order; those of different tenants have none."""

    data: bytes
    tenant: str = ""
    """The customer id, as text: the ordering key. The log calls it `host_id`."""
    key: str = ""
    """The contact or device it is about. The log calls it `user_id`."""
    attributes: Mapping[str, str] = msgspec.field(default_factory=dict)
    deliver_at: datetime | None = None
    """When every subscription is to get it; until then nobody sees it. With a time zone. Not on Pub/Sub."""
    dedup_key: str | None = None
    """A topic takes a key once: what is published with it again is dropped without an error. Not on Pub/Sub."""

    @property
    def is_special(self) -> bool:
        """Whether the log has to look at more than its place before it takes the message."""
        return self.deliver_at is not None or self.dedup_key is not None


class ReceivedMessage(Struct, frozen=True, gc=False):
    """A message as a subscription delivers it."""

    topic: str
    message_id: str
    data: bytes
    tenant: str
    key: str
    attributes: Mapping[str, str]
    attempt: int
    """1 at the first delivery. Deliveries of which nothing was tried do not count."""
    published_at: datetime


@dataclass(frozen=True, slots=True)
class Done:
    """Handled: never deliver it again."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Deliver it again, not before `delay_s` seconds from now; others do not wait for it."""

    delay_s: float
    reason: str = ""
    is_attempt: bool = True
    """Whether this delivery counts as an attempt. A message that only waits for something was not tried."""

    def attempts(self, attempt: int) -> int:
        """The attempts so far, after delivery number `attempt`."""
        return attempt if self.is_attempt else attempt - 1


@dataclass(frozen=True, slots=True)
class Dead:
    """It can never succeed: set it aside with the reason."""

    reason: str
    error_class: str = ""


Outcome = Done | Retry | Dead
DONE = Done()


class Batch(Protocol):
    """Messages taken together, and the transaction they are handled in."""

    @property
    def subscription(self) -> str: ...

    @property
    def messages(self) -> Sequence[ReceivedMessage]: ...

    @property
    def connection(self) -> AsyncConnection[Any]:
        """Inside the batch's transaction. The handler may use savepoints; it never commits or rolls back."""
        ...

    def publish(self, topic: str, messages: Sequence[Message], *, encoded_here: bool = False) -> None:
        """Publish together with the batch: buffered, checked now, visible to others only when the batch is settled.

        `encoded_here`: the caller has made their JSON itself, so that nobody needs to look whether it is some.
        """
        ...

    def forward(self, topic: str, message: ReceivedMessage, attributes: Mapping[str, str]) -> None:
        """`publish` for a message as it came, whatever its data is, with these attributes in addition.

        Not all that comes could have been published through us: Google's clients send any bytes.
        """
        ...


Handler = Callable[[Batch], Awaitable[Sequence[Outcome] | None]]
"""Returns an outcome per message, in their order; None means that all are done.

An exception fails the batch. `clientmgr.base.errors.classify` alone decides: a transient one lets the batch come again;
any other has it taken apart by transaction groups. The group that fails is dead if the error is permanent. If nobody
foresaw it, the group comes again by itself: later messages of its tenant wait for it, and nobody else does.
"""


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """How a subscription is read. Names in brackets are the specification's."""

    batch_size: int = 100  # batchSize
    largest_batch_size: int = 0
    """While a backlog lasts, batches grow up to this as long as they are quick. Ignored by Pub/Sub."""
    wait_period_ms: int = 1000  # waitPeriodMs
    partition_id: int | None = None  # partitionId; None: any free partition that has work. Ignored by Pub/Sub.
    concurrency: int = 1
    """Batches in hand at once."""
    max_attempts: int = 10
    """Attempts before an unforeseen error counts as permanent."""
    linger_ms: int = 0
    """Wait this long for a batch to fill up to `batch_size` before it is handled."""
    handler_timeout_s: float | None = None
    """A handler that takes longer is cancelled: its batch is rolled back and taken apart, as after any error that
    nobody foresaw. None: it may take as long as it likes. What blocks the event loop can't be cancelled."""


@dataclass(slots=True)
class ConsumeStats:
    """What one `consume` call did, counted in messages."""

    done: int = 0
    retried: int = 0
    dead: int = 0
    batches: int = 0


class Broker(Protocol):
    """A transport. Open it with `async with`; topics and subscriptions are named as in the contracts."""

    takes_dedup_keys: bool
    """Whether a message may have a dedup key or wait for its time."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def ensure(self, topics: Sequence[str], subscriptions: Mapping[str, str], *, from_start: bool = True) -> None:
        """`ensure_topic` and `ensure_subscription` (name → its topic) for several at once, as daemons start."""
        ...

    async def ensure_topic(self, topic: str) -> None:
        """Make the topic where it is missing and that is allowed, else raise with its name."""
        ...

    async def ensure_subscription(self, subscription: str, topic: str, *, from_start: bool = True) -> None:
        """Make the subscription where it is missing; it reads from the log's beginning, or what comes from now on."""
        ...

    async def publish(
        self, topic: str, messages: Sequence[Message], *, connection: AsyncConnection[Any] | None = None
    ) -> None:
        """Publish all or nothing. Given a connection to the log's own database, as part of its transaction.

        Returns when the messages are durable, or, with a connection, when its transaction will make them so: they are
        appended when it commits. Messages of one tenant are one transaction group; tenants never share one.
        """
        ...

    async def consume(
        self,
        subscription: str,
        handler: Handler,
        *,
        options: ConsumerOptions | None = None,
        stop: asyncio.Event | None = None,
        burst: bool = False,
    ) -> ConsumeStats:
        """Hand batches to `handler` until `stop` is set, or, in burst mode, until nothing is left to deliver.

        Burst mode waits for retries that are due within a moment and leaves those that are not. On `stop` the batch in
        hand is finished; a cancellation rolls it back. Either way no message is lost and no connection is kept.
        """
        ...


def check_publishable(topic: str, message: Message, max_bytes: int, *, encoded_here: bool = False) -> None:
    """Refuse what could be stored but never handled: both transports refuse the same, by the name of the field.

    What is refused is not quoted: a traceback may be printed anywhere, and contents are nobody's business there.
    """
    if len(message.data) > max_bytes:
        raise InvalidInputError("data", f"at most {max_bytes} bytes for topic {topic}", f"{len(message.data)} bytes")
    if not encoded_here:
        _check_json(topic, message.data)
    if message.attributes:
        check_attributes(message.attributes)


def _check_json(topic: str, data: bytes) -> None:
    if b"\0" in data:
        raise InvalidInputError("data", f"text without NUL bytes for topic {topic}", f"{len(data)} bytes")
    if not _is_plain_json(data):
        try:
            json.loads(data.decode(), parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            expected = f"JSON in UTF-8 for topic {topic} ({error})"
            raise InvalidInputError("data", expected, f"{len(data)} bytes") from None


def check_attributes(attributes: Mapping[str, str]) -> None:
    """Refuse what Pub/Sub would."""
    if len(attributes) > MAX_ATTRIBUTES:
        raise InvalidInputError("attributes", f"at most {MAX_ATTRIBUTES}", f"{len(attributes)} attributes")
    for name, value in attributes.items():
        if not name or len(name.encode()) > MAX_ATTRIBUTE_KEY_BYTES or "\0" in name:
            raise InvalidInputError("attributes", f"names of 1 to {MAX_ATTRIBUTE_KEY_BYTES} bytes without NUL", name)
        if len(value.encode()) > MAX_ATTRIBUTE_VALUE_BYTES or "\0" in value:
            raise InvalidInputError(
                f"attributes.{name}",
                f"at most {MAX_ATTRIBUTE_VALUE_BYTES} bytes without NUL",
                f"{len(value.encode())} bytes",
            )


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _is_plain_json(data: bytes) -> bool:
    """A quick look that passes nearly all: whatever this decoder takes, `json` takes too, in five times the time."""
    try:
        _DECODER.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


_DECODER = msgspec.json.Decoder()
