"""What a sender is to the rest of the broadcast, and what a connection is to a sender.

A sender keeps the subscribers of each topic in an audience of its own making and sends to all of them at once.
`plain` and `ring` are the two senders; `auto` chooses between them when an instance starts.
"""

from collections.abc import Collection, Iterator
from typing import Protocol, TypeAlias

from streaming.live.broadcast.sending.frame_batch import FrameBatch
from streaming.live.broadcast.sending.outbox import Outbox


class Subscriber(Protocol):
    """A connection, as far as a sender knows it. It is compared by identity."""

    @property
    def outbox(self) -> Outbox: ...

    @property
    def subscriptions(self) -> Collection[str]:
        """The events that it watches."""

    def descriptor(self) -> int:
        """The file descriptor of its socket."""

    def cut_off(self) -> None:
        """End the connection at once, with whatever is still on its way."""


WatchesSeveral: TypeAlias = dict[Subscriber, list[FrameBatch]]
"""Subscribers of more than one topic, with the batches of one read that are for them: they get one write for all."""


class Audience(Protocol):
    """The subscribers of one topic."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Subscriber]: ...

    def add(self, subscriber: Subscriber) -> None:
        """Add it, unless it is there already."""

    def discard(self, subscriber: Subscriber) -> None:
        """Remove it, if it is there."""

    def send(self, batch: FrameBatch, several: WatchesSeveral) -> None:
        """Send to those who watch only this topic, without waiting. Put the others into `several`."""


class Sender(Protocol):
    """One instance's way to send. Close it after the last connection has ended."""

    @property
    def name(self) -> str:
        """For the log."""

    def audience(self) -> Audience:
        """An empty audience, for a topic that has just got its first subscriber."""

    def set_apart(self, subscriber: Subscriber) -> None:
        """To be called before a subscriber gets bytes by any other way than its audience, and before it watches
        another topic. From here on its outbox keeps its bytes in order.
        """

    def close(self) -> None: ...
