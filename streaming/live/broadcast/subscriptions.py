"""Who watches which topic. A topic exists for as long as somebody watches it."""

from collections.abc import Iterator

from clientmgr.base.logs import get_logger
from streaming.live.broadcast.broadcast_metrics import TOPICS
from streaming.live.broadcast.frames import TOPIC_PREFIX, position_start
from streaming.live.broadcast.sending.interface import Audience, Sender, Subscriber

log = get_logger(__name__)


class Topic:
    """One event's subscribers, and how each of its frames begins."""

    __slots__ = ("audience", "event", "name", "position_start")

    def __init__(self, event: str, audience: Audience) -> None:
        self.event = event
        self.name = TOPIC_PREFIX + event
        self.position_start = position_start(self.name)
        self.audience = audience


class TopicRegistry:
    """All topics of an instance that somebody watches."""

    def __init__(self, sender: Sender, warn_above: int) -> None:
        self._sender = sender
        self._topics: dict[str, Topic] = {}
        self._warn_above = warn_above
        self._warned = False

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    def get(self, event: str) -> Topic | None:
        return self._topics.get(event)

    def subscribe(self, event: str, subscriber: Subscriber) -> Topic:
        topic = self._topics.get(event)
        if topic is None:
            topic = self._topics[event] = Topic(event, self._sender.audience())
            self._count()
        topic.audience.add(subscriber)
        return topic

    def unsubscribe(self, event: str, subscriber: Subscriber) -> None:
        topic = self._topics.get(event)
        if topic is None:
            return
        topic.audience.discard(subscriber)
        if not len(topic.audience):
            del self._topics[event]
            self._count()

    def _count(self) -> None:
        TOPICS.set(len(self))
        if len(self) <= self._warn_above:
            self._warned = False
        elif not self._warned:
            self._warned = True
            log.warning("more topics than events are likely to exist", topics=len(self), threshold=self._warn_above)
