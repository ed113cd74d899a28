"""Parts of the broadcast by themselves: topics, health, frames."""

import time
import tracemalloc
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from websockets.frames import Frame, Opcode

from clientmgr.base.errors import SettingsError
from clientmgr.base.settings import load_settings
from clientmgr.live.redis_stream import open_redis
from streaming.live.broadcast.connection import Connection
from streaming.live.broadcast.frames import event_of, text_frame
from streaming.live.broadcast.last_positions import LastPositions
from streaming.live.broadcast.reader import REAP_AFTER_MS, StreamReader
from streaming.live.broadcast.sending.plain import PlainSender
from streaming.live.broadcast.subscriptions import TopicRegistry
from tests.live.stream import at_the_newest


def test_more_topics_than_are_likely_are_warned_of_once() -> None:
    topics = TopicRegistry(PlainSender(), warn_above=2)
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
    reader = StreamReader(load_settings(), "me", LastPositions("s"), lambda _: None, at_the_newest)
    assert reader.problem() == "starting"
    reader.reading.set()
    reader._read_at = time.monotonic()
    assert reader.problem() == ""
    reader._read_at -= 12
    assert reader.problem() == "nothing could be read from Redis for 12 s"


def test_an_instance_that_waits_long_for_a_quiet_stream_is_healthy() -> None:
    settings = load_settings(live_broadcast_batch_block_ms=30_000)
    reader = StreamReader(settings, "me", LastPositions("s"), lambda _: None, at_the_newest)
    reader.reading.set()
    reader._read_at = time.monotonic() - 35
    assert reader.problem() == ""
    reader._read_at -= 10
    assert reader.problem() == "nothing could be read from Redis for 45 s"


def test_an_instance_asks_often_enough_not_to_be_taken_for_dead() -> None:
    with pytest.raises(SettingsError, match="LIVE_BROADCAST_BATCH_BLOCK_MS"):
        load_settings(live_broadcast_batch_block_ms=REAP_AFTER_MS // 2 + 1)


def test_a_redis_on_a_unix_socket_is_asked_for_nothing_that_only_tcp_has() -> None:
    client = open_redis(load_settings(redis_url="unix:///nowhere/redis.sock"), blocking=True)
    cast(Any, client.connection_pool).make_connection()


def test_fragments_without_content_take_no_memory() -> None:
    hub = SimpleNamespace(loop=SimpleNamespace(time=time.monotonic), settings=load_settings())
    connection = Connection(cast(Any, hub))
    connection._take(Frame(Opcode.TEXT, b"{", fin=False))
    nothing = Frame(Opcode.CONT, b"", fin=False)
    tracemalloc.start()
    try:
        for _ in range(100_000):
            connection._take(nothing)
        # Whatever else the process does meanwhile counts too. Kept fragments would be 8 bytes each.
        assert tracemalloc.get_traced_memory()[0] < 400_000
    finally:
        tracemalloc.stop()


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
