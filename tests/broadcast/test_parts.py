"""Parts of the broadcast by themselves: topics, health, frames."""

import time
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from websockets.frames import Frame, Opcode

from clientmgr.settings import load_settings
from streaming.broadcast.frames import event_of, text_frame
from streaming.broadcast.last_positions import LastPositions
from streaming.broadcast.reader import StreamReader
from streaming.broadcast.topics import TopicRegistry


def test_more_topics_than_are_likely_are_warned_of_once() -> None:
    topics = TopicRegistry(warn_above=2)
    watcher = cast(Any, object())
    with capture_logs() as logs:
        for event in ("E1", "E2", "E3", "E4"):
            topics.subscribe(event, watcher)
    assert [(entry["log_level"], entry["topics"]) for entry in logs] == [("warning", 3)]
    with capture_logs() as logs:
        for event in ("E1", "E2", "E3"):
            topics.unsubscribe(event, watcher)
        for event in ("E1", "E2"):
            topics.subscribe(event, watcher)
    assert len(logs) == 1


def test_an_instance_that_reads_nothing_from_redis_is_not_healthy() -> None:
    reader = StreamReader(load_settings(), "me", LastPositions("s"), lambda _: None)
    assert reader.problem() == "starting"
    reader.reading.set()
    reader._read_at = time.monotonic()
    assert reader.problem() == ""
    reader._read_at -= 11
    assert reader.problem() == "nothing could be read from Redis for 11 s"


@pytest.mark.parametrize("length", [0, 1, 125, 126, 127, 65_535, 65_536, 100_000])
def test_frames_are_as_the_protocol_has_them(length: int) -> None:
    payload = b"x" * length
    assert text_frame(payload) == Frame(Opcode.TEXT, payload).serialize(mask=False)


@pytest.mark.parametrize(
    ("topic", "event"),
    [
        ("event:E1", "E1"),
        ("event:event:E1", "event:E1"),
        ("event:Zürich 2026", "Zürich 2026"),
        ("event:", None),
        ("E1", None),
        ("event:a\nb", None),
        ("event:" + "x" * 128, "x" * 128),
        ("event:" + "x" * 129, None),
    ],
)
def test_a_topic_names_its_event(topic: str, event: str | None) -> None:
    assert event_of(topic) == event
