"""What clients may say, what they are answered, and which of them are let in."""

import asyncio
import time
from contextlib import AsyncExitStack

import pytest
from websockets.exceptions import ConnectionClosed

from clientmgr.live.tokens import make_token
from streaming.live.broadcast import connection
from streaming.live.broadcast.http import PAGE
from tests.live.serving import Served, serving, until, watching
from tests.live.stream import Stream, record

pytestmark = pytest.mark.anyio


def token(served: Served, *events: str, lifetime_s: float = 60.0) -> str:
    return make_token(served.settings.live_token_key.get_secret_value().encode(), events, lifetime_s)


async def test_who_unsubscribes_hears_no_more_and_the_topic_is_gone(stream: Stream) -> None:
    stream.enter("E1", ["d1"])
    async with serving(stream.settings) as served, watching(served, "E1") as watcher:
        assert await served.metric("processor_live_topics") == 1
        answer = await watcher.ask({"type": "unsubscribe", "topic": "event:E1"})
        assert answer == {"type": "unsubscribed", "topic": "event:E1"}
        assert await served.metric("processor_live_topics") == 0
        stream.add(record("d1"))
        assert (await watcher.ask({"type": "events"}))["type"] == "events"


async def test_a_topic_goes_with_the_last_who_leaves(stream: Stream) -> None:
    async with serving(stream.settings) as served:
        async with watching(served, "E1", "E2"):
            assert await served.metric("processor_live_connections") == 1
            assert await served.metric("processor_live_topics") == 2

        async def no_topic() -> bool:
            return not await served.metric("processor_live_topics")

        await until(no_topic, "the topics are gone")
        assert await served.metric("processor_live_connections") == 0


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{", "bad_json"),
        ("", "bad_json"),
        (b"\x00\x01", "bad_json"),
        ('"text"', "invalid_message"),
        ("[" * 4000, "invalid_message"),
        ({"type": "dance"}, "unknown_type"),
        ({"topic": "event:E1"}, "unknown_type"),
        ({"type": 5}, "unknown_type"),
        ({"type": "subscribe"}, "invalid_message"),
        ({"type": "subscribe", "topic": 5}, "invalid_message"),
        ({"type": "subscribe", "topic": "E1"}, "unknown_topic"),
        ({"type": "subscribe", "topic": "event:"}, "unknown_topic"),
        ({"type": "subscribe", "topic": "event:" + "x" * 129}, "unknown_topic"),
        ({"type": "subscribe", "topic": "event:" + "x" * 5000}, "too_large"),
    ],
)
async def test_a_wrong_message_is_answered_with_an_error_and_the_connection_stays(
    shared: Served, message: object, code: str
) -> None:
    async with watching(shared) as watcher:
        answer = await watcher.ask(message)
        assert (answer["type"], answer["code"]) == ("error", code), answer
        assert answer["message"]
        await watcher.subscribe("E1")


async def test_a_message_may_come_in_fragments(shared: Served) -> None:
    async with watching(shared) as watcher:
        await watcher.socket.send(['{"type":"subscribe",', '"topic":', '"event:E1"}'])
        assert (await watcher.hear())["type"] == "subscribed"


async def test_a_binary_message_in_fragments_is_refused_as_a_whole(shared: Served) -> None:
    async with watching(shared) as watcher:
        await watcher.socket.send([b'{"type":"subscribe",', b'"topic":', b'"event:E1"}'])
        assert (await watcher.hear())["code"] == "bad_json"
        assert (await watcher.ask({"type": "events"}))["type"] == "events"


async def test_ten_thousand_malformed_messages_harm_nobody(stream: Stream) -> None:
    stream.enter("E1", ["d1"])
    patient = stream.settings.model_copy(update={"live_ws_max_messages_per_s": 1e6, "live_ws_message_burst": 10_100})
    async with serving(patient) as served, watching(served, "E1") as other, watching(served) as flooding:
        for _ in range(100):
            for number in range(100):
                await flooding.say("{" * number)
            errors = [await flooding.hear() for _ in range(100)]
            assert {error["code"] for error in errors} == {"bad_json"}
        stream.add(record("d1"))
        await other.positions(1)
        await flooding.subscribe("E1")


async def test_a_huge_frame_is_not_read(shared: Served) -> None:
    async with watching(shared) as watcher:
        await watcher.say("x" * 70_000)
        assert (await watcher.closed())[0] == 1009


async def test_subscriptions_are_limited(stream: Stream) -> None:
    settings = stream.settings.model_copy(update={"live_ws_max_subscriptions": 2})
    async with serving(settings) as served, watching(served, "E1", "E2") as watcher:
        answer = await watcher.ask({"type": "subscribe", "topic": "event:E3"})
        assert answer["code"] == "too_many_subscriptions"
        await watcher.subscribe("E1")  # a second time: not one more


async def test_connections_are_limited_and_who_comes_too_late_learns_why(stream: Stream) -> None:
    settings = stream.settings.model_copy(update={"live_ws_max_connections": 1})
    async with serving(settings) as served, watching(served), watching(served) as second:
        assert await second.closed() == (1013, "too many connections")


async def test_connections_far_beyond_the_limit_are_cut_off_unheard(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "SPARE_CONNECTIONS", -1)
    limits = {"live_ws_max_connections": 1, "live_ws_max_unauthenticated": 2}
    async with serving(stream.settings, **limits) as served, AsyncExitStack() as silent:
        readers = []
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            silent.callback(writer.close)
            readers.append(reader)
        async with asyncio.timeout(5):
            with pytest.raises(ConnectionResetError):
                await readers[2].read(1)
        assert not any(reader.at_eof() for reader in readers[:2])


async def test_who_says_nothing_is_pinged_and_who_does_not_answer_is_cut_off(stream: Stream) -> None:
    async with serving(stream.settings, live_ws_ping_interval_ms=300) as served, watching(served) as answering:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(
            b"GET /ws?token=%b HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
            % token(served, "*").encode()
        )
        async with asyncio.timeout(10):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
            assert await reader.readexactly(2) == b"\x89\x00"  # a ping, then the end
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
        writer.close()
        await answering.subscribe("E1")


# Who is let in


async def test_a_token_may_come_as_the_first_message(shared: Served) -> None:
    async with watching(shared, token="") as watcher:
        answer = await watcher.ask({"type": "auth", "token": token(shared, "E1")})
        assert answer["type"] == "authenticated"
        assert answer["expiresAt"] == pytest.approx((time.time() + 60) * 1000, abs=5000)
        await watcher.subscribe("E1")


async def test_a_token_may_come_with_the_first_subscription(shared: Served) -> None:
    async with watching(shared, token="") as watcher:
        answer = await watcher.ask({"type": "subscribe", "topic": "event:E1", "token": token(shared, "E1")})
        assert answer["type"] == "subscribed"
    async with watching(shared, token="") as watcher:
        await watcher.say({"type": "subscribe", "topic": "event:E1", "token": "nonsense"})
        assert (await watcher.closed())[0] == 4401


async def test_a_token_opens_its_events_and_no_others(stream: Stream) -> None:
    stream.enter("E1", ["d1"])
    stream.enter("E2", ["d2"])
    async with serving(stream.settings) as served, watching(served, token=token(served, "E1")) as watcher:
        await watcher.subscribe("E1")
        assert (await watcher.ask({"type": "subscribe", "topic": "event:E2"}))["code"] == "forbidden"
        listed = await watcher.ask({"type": "events"})
        assert listed["events"] == [{"event": "E1", "topic": "event:E1", "devices": 1}]


async def test_a_lesser_token_ends_what_it_does_not_allow(shared: Served) -> None:
    async with watching(shared, "E1", "E2") as watcher:
        await watcher.say({"type": "auth", "token": token(shared, "E2")})
        assert await watcher.hear() == {"type": "unsubscribed", "topic": "event:E1"}
        assert (await watcher.hear())["type"] == "authenticated"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("nonsense", "the token is not signed by us"),
        ("a.b.c", "the token is not signed by us"),
        ("é", "the token is not one"),
    ],
)
async def test_a_token_that_is_not_ours_is_refused(shared: Served, given: str, reason: str) -> None:
    async with watching(shared, token="") as watcher:
        await watcher.say({"type": "auth", "token": given})
        assert await watcher.closed() == (4401, reason)


async def test_a_token_signed_with_another_key_is_refused(shared: Served) -> None:
    async with watching(shared, token=make_token(b"another", ["*"], 60)) as watcher:
        assert await watcher.closed() == (4401, "the token is not signed by us")


async def test_a_token_that_has_expired_is_refused(shared: Served) -> None:
    async with watching(shared, token="") as watcher:
        await watcher.say({"type": "auth", "token": token(shared, "*", lifetime_s=-1)})
        with pytest.raises(ConnectionClosed):
            await watcher.hear()  # not even for the moment until the connections are looked at
        assert await watcher.closed() == (4401, "the token has expired")


async def test_a_token_that_expires_meanwhile_ends_the_connection(shared: Served) -> None:
    async with watching(shared, "E1", token=token(shared, "E1", lifetime_s=2)) as watcher:
        assert await watcher.closed() == (4401, "the token has expired")


async def test_without_a_token_nothing_is_answered(shared: Served) -> None:
    async with watching(shared, token="") as watcher:
        await watcher.say({"type": "subscribe", "topic": "event:E1"})
        assert await watcher.closed() == (4401, "the first message must bring the token")


async def test_no_token_is_needed_where_authentication_is_off(stream: Stream) -> None:
    async with serving(stream.settings, live_auth="off") as served, watching(served, "E1", token=""):
        pass


async def test_any_token_will_do_where_authentication_is_off(stream: Stream) -> None:
    stream.enter("E1", ["d1"])
    async with serving(stream.settings, live_auth="off") as served, watching(served, "E1", token="") as watcher:
        for given in ("nonsense", token(served, "E2"), token(served, "E2", lifetime_s=-1)):
            assert await watcher.ask({"type": "auth", "token": given}) == {"type": "authenticated"}
        stream.add(record("d1"))
        await watcher.positions(1)


@pytest.mark.parametrize(
    ("origin", "allowed", "let_in"),
    [
        ("https://evil.example", "", False),
        ("https://evil.example", "https://good.example", False),
        ("https://good.example", "https://other.example, https://good.example/", True),
        ("https://any.example", "*", True),
        ("null", "", False),
        ("http://[", "", False),
        ("http://[", "*", True),
    ],
)
async def test_pages_of_other_origins_need_to_be_allowed(
    stream: Stream, origin: str, allowed: str, let_in: bool
) -> None:
    settings = stream.settings.model_copy(update={"live_allowed_origins": allowed})
    async with serving(settings) as served, watching(served, origin=origin) as watcher:
        if let_in:
            await watcher.subscribe("E1")
        else:
            assert await watcher.closed() == (4403, "this page's origin is not allowed")


async def test_our_own_page_is_always_allowed(shared: Served) -> None:
    async with watching(shared, "E1", origin=f"http://127.0.0.1:{shared.port}"):
        pass


# What else the port answers


async def test_health_and_the_page_are_on_the_same_port_and_metrics_are_not(shared: Served) -> None:
    status, text, _ = await shared.get("/healthz")
    assert (status, text) == (200, "ok")
    assert (await shared.get("/metrics"))[0] == 404
    status, text, headers = await shared.get("/live")
    assert status == 200
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    for part in (path for path in PAGE if path != "/live"):
        assert part in text
        assert (await shared.get(part))[0] == 200
    assert (await shared.get("/nothing"))[0] == 404
    assert (await shared.get("/ws"))[0] == 426
