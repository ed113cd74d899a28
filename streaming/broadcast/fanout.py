"""From a batch of records to bytes on their way: frames built once per topic, one write per connection and batch.

Nothing here ever waits. Who is slow keeps its frames in its own outbox.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from clientmgr.errors import InvalidInputError
from clientmgr.logs import get_logger
from streaming.broadcast.connecting import Entry
from streaming.broadcast.frames import position_frame
from streaming.broadcast.last_positions import LastPositions
from streaming.broadcast.metrics import FANOUT, FIX_AGE, LAG, MALFORMED, ORPHANS, RECORDS
from streaming.broadcast.participants import Participants
from streaming.broadcast.records import decode_record
from streaming.broadcast.topics import TopicBatch, TopicRegistry

if TYPE_CHECKING:
    from streaming.broadcast.connection import Connection

log = get_logger(__name__)


class Fanout:
    """One instance's way from the stream to its connections."""

    def __init__(
        self, instance: str, participants: Participants, topics: TopicRegistry, last_positions: LastPositions
    ) -> None:
        self._participants = participants
        self._topics = topics
        self._last_positions = last_positions
        self._records = RECORDS.labels(instance)
        self._frames = FANOUT.labels(instance)
        self._orphans = ORPHANS.labels(instance)
        self._malformed = MALFORMED.labels(instance)

    def broadcast(self, entries: Sequence[Entry]) -> None:
        """Send a batch to whoever watches."""
        batches: dict[str, TopicBatch] = {}
        sent: list[tuple[int, int]] = []
        now = datetime.now(UTC)
        for entry_id, fields in entries:
            try:
                position = decode_record(fields, now)
            except InvalidInputError as error:
                self._malformed.inc()
                log.debug("a record can't be read", entry=entry_id, error=str(error))
                continue
            ts = position.ts
            body = position.body()
            self._last_positions.put(position.device_id, ts, body)
            events = self._participants.events_of(position.device_id)
            if not events:
                self._orphans.inc()
                continue
            watched = False
            for event in events:
                topic = self._topics.get(event)
                if topic is not None:
                    watched = True
                    batch = batches.get(event)
                    if batch is None:
                        batch = batches[event] = TopicBatch(topic)
                    batch.add(position.device_id, ts, position_frame(topic.position_start, body))
            if watched:
                sent.append((int(entry_id.partition(b"-")[0]), ts))
        self._records.inc(len(entries))
        if batches:
            self._send(list(batches.values()))
            self._measure(sent)

    def _send(self, batches: Sequence[TopicBatch]) -> None:
        several: dict[Connection, list[TopicBatch]] = {}
        frames = 0
        for batch in batches:
            batch.join()
            # A copy: a connection that is dropped for being slow leaves its topics at once.
            subscribers = list(batch.topic.subscribers)
            frames += len(batch.frames) * len(subscribers)
            for connection in subscribers:
                if len(connection.subscriptions) == 1:
                    connection.outbox.send(batch)
                else:
                    several.setdefault(connection, []).append(batch)
        for connection, of_connection in several.items():
            connection.outbox.send_several(of_connection)
        self._frames.inc(frames)

    def _measure(self, sent: Sequence[tuple[int, int]]) -> None:
        now_ms = time.time() * 1000
        for added_ms, fixed_ms in sent:
            # Redis has a clock of its own: a little ahead of ours, it is not ahead of time.
            LAG.observe(max(0.0, now_ms - added_ms))
            FIX_AGE.observe(max(0.0, now_ms - fixed_ms))
