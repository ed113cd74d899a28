"""What one client may take: places without a token, places of an address, messages a second, and the name it uses."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import connect

from clientmgr.base.errors import SettingsError
from clientmgr.base.settings import load_settings
from clientmgr.live.tokens import make_token
from streaming.live.broadcast.request_head import LARGEST_HEAD
from streaming.live.broadcast.server import broadcast_until_stopped
from tests.live.raw_websocket import CONTINUATION, PING, PONG, TEXT, RawClient, frame, request
from tests.live.serving import Served, Watcher, serving, until, watching
from tests.live.stream import Stream, record

pytestmark = pytest.mark.anyio

SUBSCRIBE = frame(TEXT, b'{"type":"subscribe","topic":"event:E1"}')


def token(served: Served) -> str:
    return make_token(served.settings.live_token_key.get_secret_value().encode(), ["*"], 60)


@asynccontextmanager
async def strangers(served: Served, count: int, sent: bytes = b"") -> AsyncIterator[list[RawClient]]:
    """Connections, one after the other, that have sent this much and send nothing more."""
    clients = []
    try:
        for _ in range(count):
            client = await RawClient.connect(served.port)
            clients.append(client)
            if sent.endswith(b"\r\n\r\n"):
                await client.open(sent)
            else:
                client.writer.write(sent)
        yield clients
    finally:
        for client in clients:
            client.end()


@asynccontextmanager
async def through_a_proxy(served: Served, forwarded_for: str) -> AsyncIterator[Watcher]:
    headers = {"X-Forwarded-For": forwarded_for}
    async with connect(f"{served.url}?token={token(served)}", additional_headers=headers, proxy=None) as socket:
        yield Watcher(socket)


async def is_open(client: RawClient) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            return bool(await client.reader.read(1))
    return True


# Places


@pytest.mark.parametrize("sent", [b"", b"GET /ws HTTP/1.1\r\nHost: localhost\r\n", request()])
async def test_strangers_have_few_places_and_a_newcomer_takes_the_oldest_one_s(stream: Stream, sent: bytes) -> None:
    limits: dict[str, Any] = {"live_ws_max_unauthenticated": 8, "live_ws_max_unauthenticated_per_address": 100}
    async with serving(stream.settings, **limits) as served, strangers(served, 30, sent) as silent:

        async def left() -> bool:
            return await served.metric("processor_live_unauthenticated") == 8

        await until(left, "only as many as there are places")
        assert await silent[0].next() in (("close", 1013), None)
        assert await silent[21].next() in (("close", 1013), None)
        assert await is_open(silent[22])
        async with watching(served, "E1"):
            assert await is_open(silent[-1])


async def test_one_address_has_fewer_of_them(stream: Stream) -> None:
    settings = stream.settings.model_copy(update={"live_ws_max_unauthenticated_per_address": 3})
    async with serving(settings) as served, strangers(served, 10, request()):
        assert await served.metric("processor_live_unauthenticated") == 3
        async with watching(served, "E1"):
            pass


async def test_who_has_no_token_takes_no_place_from_those_who_have(stream: Stream) -> None:
    settings = stream.settings.model_copy(update={"live_ws_max_connections": 2})
    async with serving(settings) as served, strangers(served, 10, request()), AsyncExitStack() as open_ones:
        first, second, third = [await open_ones.enter_async_context(watching(served)) for _ in range(3)]
        assert await third.closed() == (1013, "too many connections")
        await first.subscribe("E1")
        await second.subscribe("E1")


async def test_one_address_has_a_limit_of_its_own(stream: Stream) -> None:
    async with serving(stream.settings, live_ws_max_connections_per_address=2) as served:
        async with watching(served, "E1"), watching(served, "E1"), watching(served) as third:
            assert await third.closed() == (1013, "too many connections from this address")
        async with watching(served, "E1"):
            pass


async def test_a_trusted_proxy_says_whose_connection_it_is(stream: Stream) -> None:
    limits: dict[str, Any] = {"live_ws_max_connections_per_address": 1, "live_trusted_proxies": "127.0.0.0/8, ::1"}
    async with serving(stream.settings, **limits) as served, AsyncExitStack() as open_ones:
        for address in ("192.0.2.1", "198.51.100.7, 192.0.2.2", "2001:db8:1::1", "2001:db8:2::1"):
            await (await open_ones.enter_async_context(through_a_proxy(served, address))).subscribe("E1")
        # The second one by what it wrote itself, the third by its network.
        for address in ("192.0.2.1", "192.0.2.9, 192.0.2.2", "2001:db8:1::2"):
            async with through_a_proxy(served, address) as again:
                assert await again.closed() == (1013, "too many connections from this address")


async def test_nobody_else_is_believed(stream: Stream) -> None:
    async with (
        serving(stream.settings, live_ws_max_connections_per_address=1) as served,
        watching(served, "E1"),
        through_a_proxy(served, "192.0.2.1") as second,
    ):
        assert (await second.closed())[0] == 1013


# Requests


async def test_who_does_not_come_to_the_point_is_hung_up_on(stream: Stream) -> None:
    async with serving(stream.settings, live_ws_token_within_ms=300) as served:
        for sent in (b"", b"GET /live HTTP/1.1\r\nHost: localhost\r\nX: ", request()):
            async with strangers(served, 1, sent) as (slow,):
                assert await slow.everything() == ([("close", 4401)] if sent == request() else [])


async def test_a_head_that_drips_has_no_more_time(stream: Stream) -> None:
    async with serving(stream.settings, live_ws_token_within_ms=300) as served:
        client = await RawClient.connect(served.port)
        client.writer.write(b"GET /live HTTP/1.1\r\nHost: localhost\r\nX: ")

        async def hung_up() -> bool:
            if not client.writer.is_closing():
                client.writer.write(b"x")
            return client.writer.is_closing()

        await until(hung_up, "it is hung up on", within_s=5)
        client.end()


async def test_a_head_has_a_largest_size(shared: Served) -> None:
    head = request("/ws", "localhost", *(f"X-{number}: {'x' * 1000}" for number in range(LARGEST_HEAD // 1000 + 1)))
    for sent in (head, head[:-10]):
        client = await RawClient.connect(shared.port)
        assert (await client.open(sent)).startswith(b"HTTP/1.1 431 ")
        client.end()


async def status_of(served: Served, sent: bytes) -> int:
    client = await RawClient.connect(served.port)
    try:
        return int((await client.open(sent)).split()[1])
    finally:
        client.end()


async def test_a_name_that_was_made_to_point_here_is_not_answered(stream: Stream) -> None:
    async with serving(stream.settings, live_auth="off") as served:
        for host in ("evil.example", "evil.example:8787", "127.0.0.1.evil.example", "[::2]", "192.0.2.1", ""):
            for path in ("/ws", "/live", "/healthz"):
                asked = request(path, host, f"Origin: http://{host}")
                assert await status_of(served, asked) == 421, (path, host)
        assert await status_of(served, request("/ws", "localhost", "Host: evil.example")) == 421


async def test_our_own_names_are_answered(stream: Stream) -> None:
    async with serving(stream.settings, live_url="https://live.acme.example") as served:
        for host in ("localhost", "LOCALHOST:1234", "127.0.0.1", "[::1]:8787", "live.acme.example"):
            assert await status_of(served, request("/ws", host)) == 101, host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "live.acme.example"])  # noqa: S104
async def test_an_open_broadcast_is_for_this_machine_alone(host: str) -> None:
    with pytest.raises(SettingsError, match=r"LIVE_WS_HOST: .* set LIVE_AUTH=on"):
        await broadcast_until_stopped(load_settings(live_ws_host=host, live_auth="off"), asyncio.Event())


async def test_a_list_of_proxies_that_is_none_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"LIVE_TRUSTED_PROXIES: .* got 'nginx'"):
        await broadcast_until_stopped(load_settings(live_trusted_proxies="10.0.0.0/8, nginx"), asyncio.Event())


# Messages


async def test_who_sends_too_many_messages_is_closed(stream: Stream) -> None:
    stream.enter("E1", ["d1"])
    limits: dict[str, Any] = {"live_ws_max_messages_per_s": 1.0, "live_ws_message_burst": 20}
    fragment = frame(TEXT, fin=False), frame(CONTINUATION, fin=False)
    async with serving(stream.settings, **limits) as served, watching(served, "E1") as other:
        for first, following in [(sent, sent) for sent in (SUBSCRIBE, frame(PING), frame(PONG))] + [fragment]:
            client = await RawClient.connect(served.port)
            await client.open(request(f"/ws?token={token(served)}"))
            client.writer.write(first + following * 10_000)
            heard = await client.everything()
            assert heard[-1] == ("close", 1008)
            assert len(heard) <= 25
            client.end()
        stream.add(record("d1"))
        await other.positions(1)


async def test_who_sends_as_many_as_are_allowed_is_answered(shared: Served) -> None:
    client = await RawClient.connect(shared.port)
    await client.open(request(f"/ws?token={token(shared)}"))
    for number in range(100):
        client.writer.write(frame(TEXT, b'{"type":"subscribe","topic":"event:E%d"}' % number))
    assert [await client.next() for _ in range(100)] == ["subscribed"] * 100
    client.end()
