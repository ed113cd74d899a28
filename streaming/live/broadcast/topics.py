"""Topics and who is subscribed to them. A topic exists for as long as somebody watches it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from clientmgr.base.logs import get_logger
from streaming.live.broadcast.frames import TOPIC_PREFIX, position_start
from streaming.live.broadcast.metrics import TOPICS
from streaming.live.broadcast.send_ring import Recipients

if TYPE_CHECKING:
    from streaming.live.broadcast.connection import Connection

log = get_logger(__name__)


class Topic:
    """One event's subscribers, and how each of its frames begins."""

    __slots__ = ("event", "name", "others", "position_start", "together")

    def __init__(self, event: str) -> None:
        self.event = event
        self.name = TOPIC_PREFIX + event
        self.position_start = position_start(self.name)
        self.together: Recipients[Connection] = Recipients()
        """Subscribers that watch nothing else and have nothing unsent: one call sends to all of them."""
        self.others: set[Connection] = set()
        """Each by its own outbox."""

    def __len__(self) -> int:
        """How many subscribers."""
        return len(self.together) + len(self.others)

    def subscribers(self) -> list["Connection"]:
        return [*self.together, *self.others]

    def send_together(self, connection: "Connection", descriptor: int) -> None:
        """From here on, until it is set apart."""
        self.others.discard(connection)
        self.together.add(connection, descriptor)

    def set_apart(self, connection: "Connection") -> None:
        if connection in self.together:
            self.together.remove(connection)
            self.others.add(connection)

    def discard(self, connection: "Connection") -> None:
        self.set_apart(connection)
        self.others.discard(connection)


class TopicBatch:
    """The frames of one topic out of one read: one by one for slow connections, joined for all others."""

    __slots__ = ("frames", "joined", "topic")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.frames: list[tuple[str, int, bytes]] = []
        """(device, time of the fix, frame)."""
        self.joined = b""

    def add(self, device_id: str, ts: int, frame: bytes) -> None:
        self.frames.append((device_id, ts, frame))

    def join(self) -> None:
        self.joined = b"".join([frame for _, _, frame in self.frames])


class TopicRegistry:
    """All topics of an instance."""

    def __init__(self, warn_above: int) -> None:
        self._topics: dict[str, Topic] = {}
        self._warn_above = warn_above
        self._warned = False

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    def get(self, event: str) -> Topic | None:
        return self._topics.get(event)

    def subscribe(self, event: str, connection: "Connection") -> Topic:
        topic = self._topics.get(event)
        if topic is None:
            topic = self._topics[event] = Topic(event)
            self._count()
        if connection not in topic.together:
            topic.others.add(connection)
        return topic

    def unsubscribe(self, event: str, connection: "Connection") -> None:
        topic = self._topics.get(event)
        if topic is None:
            return
        topic.discard(connection)
        if not len(topic):
            del self._topics[event]
            self._count()

    def _count(self) -> None:
        TOPICS.set(len(self))
        if len(self) <= self._warn_above:
            self._warned = False
        elif not self._warned:
            self._warned = True
            log.warning("more topics than events are likely to exist", topics=len(self), threshold=self._warn_above)
