"""Turns a batch of records into frames, built once per topic, and sends them: one write per connection and batch.

Nothing here ever waits. The frames of a slow connection wait in its outbox.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from clientmgr.base.errors import InvalidInputError
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.live.redis_stream import Entry, milliseconds_of
from streaming.live.broadcast.broadcast_metrics import (
    FANOUT,
    FIX_AGE,
    LAG,
    MALFORMED,
    ORPHANS,
    OUTBOUND,
    RECORDS,
    TOO_LARGE,
)
from streaming.live.broadcast.frames import position_frame
from streaming.live.broadcast.history import History
from streaming.live.broadcast.last_positions import LastPositions
from streaming.live.broadcast.participants import Participants
from streaming.live.broadcast.sending.frame_batch import FrameBatch
from streaming.live.broadcast.sending.interface import WatchesSeveral
from streaming.live.broadcast.subscriptions import Topic, TopicRegistry
from streaming.live.records import RecordTooLargeError, decode_record

log = get_logger(__name__)


class Fanout:
    """Sends what one instance reads from the stream to its connections."""

    def __init__(
        self,
        settings: Settings,
        instance: str,
        participants: Participants,
        topics: TopicRegistry,
        *,
        last_positions: LastPositions,
        history: History,
    ) -> None:
        self._participants = participants
        self._topics = topics
        self._last_positions = last_positions
        self._history = history
        self._records = RECORDS.labels(instance)
        self._frames = FANOUT.labels(instance)
        self._outbound = OUTBOUND.labels("position")
        self._orphans = ORPHANS.labels(instance)
        self._malformed = MALFORMED.labels(instance)
        self._too_large = TOO_LARGE.labels(instance)
        self._largest_bytes = settings.live_max_record_bytes

    def broadcast(self, entries: Sequence[Entry]) -> None:
        """Send a batch to everybody who watches one of its devices' events."""
        batches: dict[Topic, FrameBatch] = {}
        sent: list[tuple[int, int]] = []
        orphans = malformed = 0
        now = datetime.now(UTC)
        for entry_id, fields in entries:
            try:
                position = decode_record(fields, now, self._largest_bytes)
            except RecordTooLargeError as error:
                self._too_large.inc()
                log.debug("a record is too large", entry=entry_id, error=str(error))
                continue
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
            added_ms = milliseconds_of(entry_id)
            self._history.add(device_id, added_ms, body)
            watched = False
            for event in events:
                topic = self._topics.get(event)
                if topic is not None:
                    watched = True
                    batch = batches.get(topic)
                    if batch is None:
                        batch = batches[topic] = FrameBatch(event)
                    batch.add(device_id, ts, position_frame(topic.position_start, body))
            if watched:
                sent.append((added_ms, ts))
        self._last_positions.upto = entries[-1][0]
        self._records.inc(len(entries))
        if orphans:
            self._orphans.inc(orphans)
        if malformed:
            self._malformed.inc(malformed)
        if batches:
            self._send(batches)
            self._measure(sent)

    def recall(self, entries: Sequence[Entry]) -> None:
        """Know a batch that came while nobody of us read. It is too late to send it: it shows in snapshots."""
        now = datetime.now(UTC)
        for entry_id, fields in entries:
            try:
                position = decode_record(fields, now, self._largest_bytes)
            except InvalidInputError:
                continue
            body = position.body()
            self._last_positions.put(position.device_id, position.ts, body)
            # Of any device: the map of who is in which event may not be loaded yet.
            self._history.add(position.device_id, milliseconds_of(entry_id), body)
        self._last_positions.upto = entries[-1][0]

    def _send(self, batches: Mapping[Topic, FrameBatch]) -> None:
        several: WatchesSeveral = {}
        frames = 0
        for topic, batch in batches.items():
            batch.join()
            frames += len(batch.frames) * len(topic.audience)
            topic.audience.send(batch, several)
        for subscriber, of_subscriber in several.items():
            subscriber.outbox.send_several(of_subscriber)
        self._frames.inc(frames)
        self._outbound.inc(frames)

    def _measure(self, sent: Sequence[tuple[int, int]]) -> None:
        now_ms = time.time() * 1000
        for added_ms, fixed_ms in sent:
            # The clock of Redis may be a little ahead of ours: a lag is never negative.
            LAG.observe(max(0.0, now_ms - added_ms))
            FIX_AGE.observe(max(0.0, now_ms - fixed_ms))
