"""What the broker's tests are made of: messages, a handler that remembers, and waiting for a condition."""

import asyncio
import time
from collections.abc import Callable, Sequence

from clientmgr.broker.interface import (
    DONE,
    Batch,
    Broker,
    ConsumerOptions,
    ConsumeStats,
    Message,
    Outcome,
    ReceivedMessage,
)

TOPIC = "orders"
SUBSCRIPTION = "orders-reader"


def message(number: int, *, tenant: str = "1", **attributes: str) -> Message:
    return Message(b'{"n": %d}' % number, tenant=tenant, key=f"key-{number}", attributes=attributes)


def messages(numbers: range, *, tenant: str = "1") -> list[Message]:
    return [message(number, tenant=tenant) for number in numbers]


def number_of(received: ReceivedMessage) -> int:
    return int(received.data.split(b":")[1].rstrip(b"}"))


class Recorder:
    """A handler that remembers what it got. `decide` gives each message's outcome, or raises."""

    def __init__(self, decide: Callable[[ReceivedMessage], Outcome] = lambda _: DONE) -> None:
        self.batches: list[list[ReceivedMessage]] = []
        self._decide = decide

    async def __call__(self, batch: Batch) -> Sequence[Outcome]:
        self.batches.append(list(batch.messages))
        return [self._decide(received) for received in batch.messages]

    @property
    def messages(self) -> list[ReceivedMessage]:
        return [received for batch in self.batches for received in batch]

    @property
    def numbers(self) -> list[int]:
        return [number_of(received) for received in self.messages]


async def ready(broker: Broker, topic: str = TOPIC, subscription: str = SUBSCRIPTION) -> None:
    """Make the topic and a subscription that reads it from the start."""
    await broker.ensure_topic(topic)
    await broker.ensure_subscription(subscription, topic)


async def drain(
    broker: Broker,
    handler: Recorder | None = None,
    subscription: str = SUBSCRIPTION,
    options: ConsumerOptions | None = None,
) -> tuple[Recorder, ConsumeStats]:
    """Consume until nothing is left."""
    handler = handler or Recorder()
    return handler, await broker.consume(subscription, handler, options=options, burst=True)


async def until(condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        await asyncio.sleep(0.005)
