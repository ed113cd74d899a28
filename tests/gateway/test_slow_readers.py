"""Clients that do not read what they asked for: the gateway holds so much for them, and others still get theirs."""

import asyncio
import functools
import queue
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import grpc
import pytest
from google.pubsub_v1 import types

from clientmgr.base.database import Database, Role
from clientmgr.base.settings import load_settings
from clientmgr.broker.gateway import answers, delivery
from clientmgr.broker.gateway.answers import Answers
from clientmgr.broker.gateway.rpc import MAX_STREAM_REQUEST_BYTES
from clientmgr.broker.gateway.server import Gateway
from tests.gateway.conftest import Clients, RawStream

LIMIT = 10_500_000
MESSAGE = b"x" * 2_000_000
MESSAGES = 16
STREAMS = 3
# A connection of its own, that takes no more than what is read from it.
SMALL_WINDOWS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 65_536),
)


@pytest.fixture
def ended() -> list[str]:
    return []


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch, ended: list[str]) -> Answers:
    monkeypatch.setattr(answers, "UNREAD_S", 0.0)

    def end(peer: str) -> bool:
        ended.append(peer)
        return True

    return Answers(most=10, most_a_client=6, end=end)


@pytest.mark.anyio
async def test_a_client_that_reads_nothing_gets_nothing_more_and_is_ended_when_it_wants_more(
    full: Answers, ended: list[str]
) -> None:
    first = full.add("a", "ipv4:1.2.3.4:5", 6)
    assert full.has_room("b")
    assert ended == []  # while there is room, everybody may take as long as it likes
    assert not full.has_room("a")
    assert ended == ["ipv4:1.2.3.4:5"]
    room = full.room.event
    first.leave()
    first.leave()
    assert room.is_set()
    assert full.has_room("a")


@pytest.mark.anyio
async def test_when_all_is_full_those_who_read_nothing_are_ended_for_anybody(full: Answers, ended: list[str]) -> None:
    full.add("a", "ipv4:1.2.3.4:5", 5)
    full.add("b", "ipv4:1.2.3.4:6", 5)
    assert not full.has_room("c")
    assert sorted(ended) == ["ipv4:1.2.3.4:5", "ipv4:1.2.3.4:6"]


@pytest.mark.anyio
async def test_a_stalled_connection_is_ended_when_others_wait_and_its_messages_come_to_them(
    database: Database, clients_of: Callable[[str], Clients], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "UNREAD_S", 2.0)
    settings = load_settings(
        database_url=database.url,
        pubsub_gateway_port=0,
        pubsub_gateway_max_bytes=LIMIT,
        pubsub_gateway_max_client_bytes=LIMIT,
    )
    async with Gateway(settings, database) as gateway:
        await asyncio.to_thread(_stall_and_pull, functools.partial(clients_of, gateway.address), gateway.address)


def _stall_and_pull(connect: Callable[[], Clients], address: str) -> None:
    clients = connect()
    topic = clients.topic()
    subscription = clients.subscription(topic, ack_deadline_seconds=600)
    for _ in range(MESSAGES):
        clients.publish(topic, MESSAGE)
    with grpc.insecure_channel(address, options=SMALL_WINDOWS) as channel:
        # A response of two messages each goes to the client's own memory, and the next one lies with the gateway.
        stalled: list[Any] = [_stream(channel, subscription) for _ in range(STREAMS)]
        pulled: set[str] = set()
        while len(pulled) < MESSAGES:
            received = clients.pull(subscription, count=1, wait_s=60)
            assert received
            clients.acknowledge(subscription, *received)
            pulled |= {one.message.message_id for one in received}
        assert any(call.done() and call.code() is grpc.StatusCode.UNAVAILABLE for call in stalled)


@pytest.mark.anyio
async def test_what_a_slow_client_has_not_read_yet_keeps_its_lease(
    database: Database, clients_of: Callable[[str], Clients], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "RENEWALS_A_LEASE", 25)
    async with Gateway(load_settings(database_url=database.url, pubsub_gateway_port=0), database) as gateway:
        connect = functools.partial(clients_of, gateway.address)
        await asyncio.to_thread(_read_nothing_then_all, connect, gateway.address, database)


def _read_nothing_then_all(connect: Callable[[], Clients], address: str, database: Database) -> None:
    clients = connect()
    topic = clients.topic()
    subscription = clients.subscription(topic, ack_deadline_seconds=10)
    published = [clients.publish(topic, MESSAGE * 2)[0] for _ in range(4)]
    with (
        database.connect(Role.WRITER, autocommit=True) as connection,
        grpc.insecure_channel(address, options=SMALL_WINDOWS) as channel,
    ):
        stream = _stream(channel, subscription, deadline_s=10)
        # The last one that was claimed lies with the gateway, as long as there is another to claim. If it had been
        # sent, its lease would have begun anew once.
        renewed: dict[tuple[int, datetime], None] = {}
        give_up_at = time.monotonic() + 30
        while len([True for offset, _ in renewed if offset == list(renewed)[-1][0]]) < 4:
            assert time.monotonic() < give_up_at, renewed
            row = connection.execute(
                "SELECT c_offset, lease_until FROM clientmgr.gateway_deliveries ORDER BY c_offset DESC LIMIT 1"
            ).fetchone()
            renewed.update({row: None} if row else {})
            time.sleep(0.05)
        assert list(renewed)[-1][0] < int(published[-1])
        received: list[str] = []
        while len(received) < len(published):
            response = types.StreamingPullResponse.deserialize(next(stream))
            received += [one.message.message_id for one in response.received_messages]
        assert received == published
        stream.cancel()


def _stream(channel: grpc.Channel, subscription: str, *, deadline_s: int = 600) -> Any:
    """Opened, and not read. While the deadline is long, what comes to others was released."""
    start = types.StreamingPullRequest.pb()(subscription=subscription, stream_ack_deadline_seconds=deadline_s)
    requests: queue.Queue[bytes] = queue.Queue()
    requests.put(start.SerializeToString())
    call = channel.stream_stream("/google.pubsub.v1.Subscriber/StreamingPull")
    return call(iter(requests.get, b""), timeout=300)


def test_a_request_on_a_stream_may_not_be_larger_than_googles(
    clients: Clients, open_stream: Callable[..., RawStream]
) -> None:
    stream = open_stream(clients.subscription(clients.topic()))
    stream.send(ack_ids=["x" * MAX_STREAM_REQUEST_BYTES])
    with pytest.raises(Exception, match="too large"):
        stream.next()
