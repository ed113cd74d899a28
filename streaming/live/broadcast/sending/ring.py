"""The io_uring sender: one system call for all subscribers that watch one topic only and have nothing unsent.

Such a subscriber is sent to together with the others, past its outbox, until it does not take everything at once or
something else has to be written to it. Then it is set apart: its outbox serves it until that is idle again.
"""

from collections.abc import Iterator

from clientmgr.base.logs import get_logger
from streaming.live.broadcast.sending.frame_batch import FrameBatch
from streaming.live.broadcast.sending.interface import Audience, Subscriber, WatchesSeveral
from streaming.live.broadcast.sending.io_uring import UNKNOWN, Recipients, SendRing
from streaming.live.broadcast.sending.plain import send_to_each

log = get_logger(__name__)

WORTH_IT_FROM = 24
"""With fewer subscribers than this the ring saves nothing."""


class RingSender:
    """Falls back to plain sends for good if the kernel refuses in the middle."""

    name = "io_uring"

    def __init__(self, ring: SendRing) -> None:
        self.ring = ring
        self._audiences: dict[Subscriber, RingAudience] = {}

    def audience(self) -> Audience:
        return RingAudience(self)

    def take_together(self, subscriber: Subscriber, audience: "RingAudience") -> None:
        """Note in which audience a subscriber is sent to together with others."""
        self._audiences[subscriber] = audience

    def set_apart(self, subscriber: Subscriber) -> None:
        audience = self._audiences.pop(subscriber, None)
        if audience is not None:
            audience.set_apart(subscriber)

    def give_up(self) -> None:
        """Use the ring no more."""
        log.warning("io_uring does not work any more: sending to each connection by itself")
        for subscriber in list(self._audiences):
            self.set_apart(subscriber)

    def close(self) -> None:
        self.ring.close()


class RingAudience:
    """Every subscriber is either sent to together with others or by its own outbox."""

    __slots__ = ("_others", "_sender", "_together")

    def __init__(self, sender: RingSender) -> None:
        self._sender = sender
        self._together: Recipients[Subscriber] = Recipients()
        self._others: set[Subscriber] = set()

    def __len__(self) -> int:
        return len(self._together) + len(self._others)

    def __iter__(self) -> Iterator[Subscriber]:
        yield from self._together
        yield from self._others

    def add(self, subscriber: Subscriber) -> None:
        if subscriber not in self._together:
            self._others.add(subscriber)

    def discard(self, subscriber: Subscriber) -> None:
        if subscriber in self._together:
            self._sender.set_apart(subscriber)
        self._others.discard(subscriber)

    def set_apart(self, subscriber: Subscriber) -> None:
        """Called by the sender, which knows whose audience this is."""
        self._together.remove(subscriber)
        self._others.add(subscriber)

    def send(self, batch: FrameBatch, several: WatchesSeveral) -> None:
        ring = self._sender.ring
        if self._others and ring.working and len(self) >= WORTH_IT_FROM:
            self._bring_together()
        send_to_each(self._others, batch, several)
        if not len(self._together):
            return
        for subscriber, taken in ring.send(self._together, batch.joined):
            if taken == UNKNOWN:
                subscriber.cut_off()
            else:
                subscriber.outbox.send_rest(batch, taken)
        if not ring.working:
            self._sender.give_up()

    def _bring_together(self) -> None:
        for subscriber in list(self._others):
            if len(subscriber.subscriptions) == 1 and subscriber.outbox.idle:
                self._others.remove(subscriber)
                self._together.add(subscriber, subscriber.descriptor())
                self._sender.take_together(subscriber, self)
