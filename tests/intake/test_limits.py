"""How much a caller may send, and what a connection may do: more is refused, and nobody else suffers."""

import asyncio

import pytest

from clientmgr.contracts import topics
from clientmgr.contracts.intake_keys import KeyKind
from tests.intake.door import Door, opened, until_answered

pytestmark = pytest.mark.anyio

SEEN = "/v1/devices/c/seen"
EVENT = {"eventType": "client.updated", "clientId": "c"}
CHUNKED = b"POST /v1/events HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
PAGE = "https://shop.example.com"


async def raw(door: Door, data: bytes) -> bytes:
    """What comes back until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    try:
        writer.write(data)
        async with asyncio.timeout(60):
            return await reader.read()
    finally:
        writer.close()


async def test_a_key_and_an_address_have_their_rates(door: Door) -> None:
    rates = {"intake_key_events_per_s": 0.01, "intake_address_events_per_s": 0.02, "intake_burst_s": 200}
    door.rig.query("DELETE FROM clientmgr.intake_keys")
    async with opened(door.rig, **rates) as strict:
        assert (await strict.call("POST", SEEN)).status_code == 202
        batch = await strict.call("POST", "/v1/events", [EVENT, EVENT])
        assert (batch.status_code, int(batch.headers["retry-after"])) == (429, 100)
        assert batch.headers["content-type"] == "application/problem+json"
        assert (await strict.call("POST", SEEN)).status_code == 202
        assert (await strict.call("POST", SEEN)).status_code == 429
        # Another key has a rate of its own, but guesses and signed requests share that of their address.
        assert (await strict.signed("POST", SEEN)).status_code == 202
        answers = [(await strict.call("POST", SEEN, key="wrong")).status_code for _ in range(5)]
        assert answers == [401, 401, 401, 429, 429]
        assert (await strict.signed("POST", SEEN)).status_code == 429
        # Nobody believes a stranger about its address.
        forwarded = await strict.call("POST", SEEN, key="wrong", X_Forwarded_For="192.0.2.7")
        assert forwarded.status_code == 429
    assert len(door.rig.topic(topics.WRITER)) == 3


async def test_a_trusted_proxy_says_whose_request_it_is(door: Door) -> None:
    door.rig.query("DELETE FROM clientmgr.intake_keys")
    rates = {"intake_address_events_per_s": 0.01, "intake_burst_s": 100, "intake_trusted_proxies": "127.0.0.1"}
    async with opened(door.rig, **rates) as behind:
        for address, status in (
            ("192.0.2.1", 401),
            ("192.0.2.1", 429),
            ("192.0.2.2", 401),
            ("9.9.9.9, 192.0.2.2", 429),
        ):
            answer = await behind.call("POST", SEEN, key="wrong", X_Forwarded_For=address)
            assert answer.status_code == status, address


async def test_too_much_for_one_request_is_refused(door: Door) -> None:
    door.rig.query("DELETE FROM clientmgr.intake_keys")
    async with opened(door.rig, intake_max_events=2, intake_max_body_bytes=1024) as small:
        assert (await small.call("POST", "/v1/events", [EVENT] * 2)).status_code == 202
        assert (await small.call("POST", "/v1/events", [EVENT] * 3)).status_code == 413
        assert (await small.call("PUT", "/v1/devices/c", {"deviceModel": "x" * 2000})).status_code == 413
        chunked = b"PUT /v1/devices/c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert b" 413 " in await raw(small, chunked + b"800\r\n" + b"x" * 0x800 + b"\r\n")
        assert (await small.call("PUT", "/v1/devices/c", {}, Content_Type="text/plain")).status_code == 415
        assert (await small.call("PUT", "/v1/devices/c", {}, Content_Encoding="gzip")).status_code == 415


async def test_what_is_no_request_ends_its_connection_and_no_other(door: Door) -> None:
    for data, status in (
        (b"\x16\x03\x01\x02\x00", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", 404),
        (b"POST /v1/events HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST /v1/events HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", 413),
        (b"GET /" + b"x" * 20_000, 431),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 100 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 70_000, 431),
        # The parser takes time that grows with the square of a trailer's length.
        (CHUNKED + b"0\r\nA: " + b"x" * 70_000, 431),
        (CHUNKED + b"1;a=" + b"x" * 70_000, 431),
        (CHUNKED + b"0" * 70_000, 431),
        # Of many small pieces it is still a body.
        (CHUNKED + b"1\r\n \r\n" * 20_000 + b"0\r\nConnection: close\r\n\r\n", 401),
    ):
        answer = await raw(door, data)
        assert f" {status} ".encode() in answer.partition(b"\r\n")[0], (data[:60], answer[:200])
    assert (await door.call("POST", SEEN)).status_code == 202


@pytest.mark.parametrize(
    "framed",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        b"Content-Length: 4\r\nContent-Length: 0\r\n\r\n",
        b"Content-Length: 0, 0\r\n\r\n",
        b"Content-Length: +0\r\n\r\n",
        b"Content-Length : 0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n1\nZ\n0\n\n",
        b"Transfer-Encoding: chunked\r\n\r\n2;\nxx\r\n4c\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n-1\r\nZ\r\n0\r\n\r\n",
        b"Upgrade: x\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n",
        b"A: b\rContent-Length: 4\r\n\r\n",
        b"\n\n",
    ],
)
async def test_what_two_readers_could_cut_differently_smuggles_no_request(door: Door, framed: bytes) -> None:
    head = b"POST /v1/events HTTP/1.1\r\nHost: h\r\n"
    answer = await raw(door, head + framed + b"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 401 ")), answer
    assert b"200 OK" not in answer


async def test_an_answer_to_head_has_no_body_that_the_next_caller_could_get(door: Door) -> None:
    for path, status in (("/healthz", 200), ("/v1/events", 405), ("/nowhere", 404)):
        head = f"HEAD {path} HTTP/1.1\r\nHost: h\r\n\r\n"
        answer = await raw(door, f"{head}GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
        first, second, rest = answer.decode().split("\r\n\r\n")
        assert first.startswith(f"HTTP/1.1 {status} ")
        assert (second.partition("\r\n")[0], rest) == ("HTTP/1.1 200 OK", "ok")


async def test_requests_sent_ahead_are_answered_in_order(door: Door) -> None:
    head = f"Host: h\r\nAuthorization: Bearer {door.server_key}\r\n"
    ahead = "".join(f"POST {SEEN} HTTP/1.1\r\n{head}Idempotency-Key: e{n}\r\n\r\n" for n in range(50))
    last = f"GET /healthz HTTP/1.1\r\n{head}Connection: close\r\n\r\n"
    answer = (await raw(door, (ahead + last).encode())).decode()
    places = [answer.index(f'["e{n}"]') for n in range(50)]
    assert places == sorted(places)
    assert answer.endswith("ok")
    assert len(door.rig.topic(topics.WRITER)) == 50


async def test_connections_of_one_address_are_few(door: Door) -> None:
    door.rig.query("DELETE FROM clientmgr.intake_keys")
    async with opened(door.rig, intake_max_connections_per_address=2) as narrow:
        silent = [await asyncio.open_connection("127.0.0.1", narrow.port) for _ in range(3)]
        # The one that kept us waiting longest made room.
        async with asyncio.timeout(60):
            assert await silent[0][0].read() == b""
        assert (await narrow.call("POST", SEEN)).status_code == 202
        for _, writer in silent:
            writer.close()


async def test_a_page_may_use_the_keys_that_name_it(door: Door) -> None:
    page_key = door.make_key(kind=KeyKind.APP, name="web", origins=(PAGE,))
    asked = {"Origin": PAGE, "Access_Control_Request_Method": "PUT"}
    preflight = await until_answered(lambda: door.call("OPTIONS", "/v1/devices/c", key="", **asked), 204)
    assert preflight.headers["access-control-allow-origin"] == PAGE
    assert "PUT" in preflight.headers["access-control-allow-methods"]
    assert {"authorization", "content-type", "idempotency-key"} <= set(
        preflight.headers["access-control-allow-headers"].split(", ")
    )
    assert "access-control-allow-credentials" not in preflight.headers
    good = await door.signed("POST", SEEN, key=page_key, Origin=PAGE)
    assert (good.status_code, good.headers["access-control-allow-origin"], good.headers["vary"]) == (
        202,
        PAGE,
        "origin",
    )
    readable = await door.call("POST", SEEN, key="wrong", Origin=PAGE)
    assert (readable.status_code, readable.headers["access-control-allow-origin"]) == (401, PAGE)

    foreign = await door.call("OPTIONS", "/v1/devices/c", key="", Origin="https://evil.example")
    assert foreign.status_code == 403
    assert "access-control-allow-origin" not in foreign.headers
    for origin, key in (("https://evil.example", page_key), ("null", page_key), (PAGE, door.app_key)):
        assert (await door.signed("POST", SEEN, key=key, Origin=origin)).status_code == 403, origin
    assert len(door.rig.topic(topics.WRITER)) == 1
