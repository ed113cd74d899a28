"""The plain sender: a write to each connection. It works everywhere."""

from collections.abc import Iterable, Iterator

from streaming.live.broadcast.sending.frame_batch import FrameBatch
from streaming.live.broadcast.sending.interface import Audience, Subscriber, WatchesSeveral


def send_to_each(subscribers: Iterable[Subscriber], batch: FrameBatch, several: WatchesSeveral) -> None:
    """Through each one's own outbox. Put those who watch several topics into `several` instead."""
    # A copy: a connection that is dropped for being slow leaves its topics at once.
    for subscriber in list(subscribers):
        if len(subscriber.subscriptions) == 1:
            subscriber.outbox.send(batch)
        else:
            several.setdefault(subscriber, []).append(batch)


class PlainAudience:
    """A set."""

    __slots__ = ("_subscribers",)

    def __init__(self) -> None:
        self._subscribers: set[Subscriber] = set()

    def __len__(self) -> int:
        return len(self._subscribers)

    def __iter__(self) -> Iterator[Subscriber]:
        return iter(self._subscribers)

    def add(self, subscriber: Subscriber) -> None:
        self._subscribers.add(subscriber)

    def discard(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)

    def send(self, batch: FrameBatch, several: WatchesSeveral) -> None:
        send_to_each(self._subscribers, batch, several)


class PlainSender:
    """Has nothing to keep: every byte goes through an outbox anyway."""

    name = "plain"

    def audience(self) -> Audience:
        return PlainAudience()

    def set_apart(self, subscriber: Subscriber) -> None:
        pass

    def close(self) -> None:
        pass
