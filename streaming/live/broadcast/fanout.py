"""From a batch of records to bytes on their way: frames built once per topic, one write per connection and batch.

Nothing here ever waits. Who is slow keeps its frames in its own outbox.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from clientmgr.base.errors import InvalidInputError
from clientmgr.base.logs import get_logger
from clientmgr.live.redis_stream import Entry
from streaming.live.broadcast.frames import position_frame
from streaming.live.broadcast.last_positions import LastPositions
from streaming.live.broadcast.metrics import FANOUT, FIX_AGE, LAG, MALFORMED, ORPHANS, RECORDS
from streaming.live.broadcast.participants import Participants
from streaming.live.broadcast.send_ring import WORTH_IT_FROM, SendRing
from streaming.live.broadcast.topics import Topic, TopicBatch, TopicRegistry
from streaming.live.records import decode_record

if TYPE_CHECKING:
    from streaming.live.broadcast.connection import Connection

log = get_logger(__name__)


class Fanout:
    """One instance's way from the stream to its connections."""

    def __init__(
        self,
        instance: str,
        participants: Participants,
        topics: TopicRegistry,
        last_positions: LastPositions,
        ring: SendRing | None = None,
    ) -> None:
        """`ring`: to send to many at once; without one, to each by itself."""
        self._participants = participants
        self._topics = topics
        self._last_positions = last_positions
        self._ring = ring
        self._records = RECORDS.labels(instance)
        self._frames = FANOUT.labels(instance)
        self._orphans = ORPHANS.labels(instance)
        self._malformed = MALFORMED.labels(instance)

    def broadcast(self, entries: Sequence[Entry]) -> None:
        """Send a batch to whoever watches."""
        batches: dict[str, TopicBatch] = {}
        sent: list[tuple[int, int]] = []
        orphans = malformed = 0
        now = datetime.now(UTC)
        for entry_id, fields in entries:
            try:
                position = decode_record(fields, now)
            except InvalidInputError as error:
                malformed += 1
                if malformed == 1:
                    log.debug("a record can't be read", entry=entry_id, error=str(error))
                continue
            device_id, ts, body = position.device_id, position.ts, position.body()
            self._last_positions.put(device_id, ts, body)
            events = self._participants.events_of(device_id)
            if not events:
                orphans += 1
                continue
            watched = False
            for event in events:
                topic = self._topics.get(event)
                if topic is not None:
                    watched = True
                    batch = batches.get(event)
                    if batch is None:
                        batch = batches[event] = TopicBatch(topic)
                    batch.add(device_id, ts, position_frame(topic.position_start, body))
            if watched:
                sent.append((int(entry_id.partition(b"-")[0]), ts))
        self._records.inc(len(entries))
        if orphans:
            self._orphans.inc(orphans)
        if malformed:
            self._malformed.inc(malformed)
        if batches:
            self._send(list(batches.values()))
            self._measure(sent)

    def _send(self, batches: Sequence[TopicBatch]) -> None:
        several: dict[Connection, list[TopicBatch]] = {}
        frames = 0
        for batch in batches:
            batch.join()
            topic = batch.topic
            frames += len(batch.frames) * len(topic)
            if self._ring is not None and len(topic) >= WORTH_IT_FROM:
                _bring_together(topic)
            # A copy: a connection that is dropped for being slow leaves its topics at once.
            for connection in list(topic.others):
                if len(connection.subscriptions) == 1:
                    connection.outbox.send(batch)
                else:
                    several.setdefault(connection, []).append(batch)
            if self._ring is not None and len(topic.together):
                for connection, taken in self._ring.send(topic.together, batch.joined):
                    connection.send_rest(batch, taken)
        for connection, of_connection in several.items():
            connection.outbox.send_several(of_connection)
        self._frames.inc(frames)
        if self._ring is not None and not self._ring.working:
            log.warning("io_uring does not work any more: sending to each connection by itself")
            self._do_without_ring()

    def _do_without_ring(self) -> None:
        self._ring = None
        for topic in self._topics:
            for connection in list(topic.together):
                connection.set_apart()

    def _measure(self, sent: Sequence[tuple[int, int]]) -> None:
        now_ms = time.time() * 1000
        for added_ms, fixed_ms in sent:
            # Redis has a clock of its own: a little ahead of ours, it is not ahead of time.
            LAG.observe(max(0.0, now_ms - added_ms))
            FIX_AGE.observe(max(0.0, now_ms - fixed_ms))


def _bring_together(topic: Topic) -> None:
    for connection in [other for other in topic.others if other.can_be_sent_to_together]:
        connection.send_together(topic)
