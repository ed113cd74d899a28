"""What one client may cost the web server: endless heads, slow bodies, silent connections, endless handshakes."""

import asyncio
import contextlib
import resource
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvloop

from clientmgr_dashboard.web import limits
from tests.dashboard.house import House, Visit, serving
from tests.dashboard.test_tls import make_certificate
from tests.streaming.processes import worker
from tests.waiting import eventually

ENDLESS = b"a" * 65_536


@pytest.fixture(params=["asyncio", "uvloop"])
def address(request: pytest.FixtureRequest, house: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A dashboard that loses patience quickly."""
    for name in ("HEAD_WITHIN_S", "BODY_STALLED_S", "HANDSHAKE_WITHIN_S"):
        monkeypatch.setattr(limits, name, 0.5)
    few = {"dashboard_max_connections": 30, "dashboard_max_connections_per_address": 20}
    loop = uvloop.new_event_loop() if request.param == "uvloop" else asyncio.new_event_loop()
    with serving(house.settings.model_copy(update=few), loop=loop) as address:
        yield address


def connected(address: str) -> socket.socket:
    url = httpx.URL(address)
    assert url.port is not None
    return socket.create_connection((url.host, url.port), timeout=10)


def head(address: str, more: str = "", method: str = "GET", path: str = "/healthz") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: {httpx.URL(address).netloc.decode()}\r\n{more}".encode()


def answer(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65_536):
            found += part
    return found


def test_an_endless_header_is_refused_and_others_are_served_meanwhile(address: str) -> None:
    with connected(address) as endless:
        endless.sendall(head(address, "X-Endless: "))
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                endless.sendall(ENDLESS)
        assert httpx.get(f"{address}/healthz", timeout=5).text == "ok"
        assert answer(endless).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("beginning", ["GET /", "", "GET / HTTP/1.1\r\n"])
def test_no_part_of_a_head_is_endless(address: str, beginning: str) -> None:
    filling = b"\r\n" * 40_000 if not beginning else b"a" * 80_000
    with connected(address) as endless:
        with contextlib.suppress(ConnectionError):
            endless.sendall(beginning.encode() + filling)
        assert b" 431 " in answer(endless)


def test_a_head_of_a_common_size_is_taken_also_behind_another(address: str) -> None:
    request = head(address, f"X-Large: {'a' * 20_000}\r\n\r\n")
    with connected(address) as connection:
        connection.sendall(request * 3 + head(address, "Connection: close\r\n\r\n"))
        assert answer(connection).count(b"HTTP/1.1 200 OK") == 4


def test_a_head_that_never_ends_gets_a_time_out(address: str) -> None:
    started = time.monotonic()
    with connected(address) as slow:
        slow.sendall(head(address))
        assert answer(slow).startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - started < 4


def test_a_second_head_on_the_same_connection_has_its_time_too(address: str) -> None:
    with connected(address) as slow:
        slow.sendall(head(address, "\r\n") + b"GET /")
        found = answer(slow)
        assert found.startswith(b"HTTP/1.1 200 OK")
        assert b"HTTP/1.1 408 " in found


@pytest.mark.parametrize("beginning", ["", "some"])
def test_a_body_that_never_comes_gets_a_time_out(address: str, beginning: str) -> None:
    with connected(address) as slow:
        slow.sendall(head(address, f"Content-Length: 1000\r\n\r\n{beginning}", "POST", "/sign-in"))
        assert b"HTTP/1.1 408 " in answer(slow)
    assert httpx.get(f"{address}/healthz").text == "ok"


def test_a_body_that_drips_has_a_time_out_too(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_STALLED_S", 30.0)
    monkeypatch.setattr(limits, "BODY_WITHIN_S", 0.5)
    with connected(address) as slow:
        slow.sendall(head(address, "Content-Length: 100000\r\n\r\n", "POST", "/sign-in"))
        slow.settimeout(0.05)
        found = b""

        def is_refused() -> bool:
            nonlocal found
            with contextlib.suppress(TimeoutError, ConnectionError):
                slow.sendall(b"x")
                found += slow.recv(1000)
            return b"HTTP/1.1 408 " in found

        eventually(is_refused, "it is refused", within_s=10)


def test_silent_connections_of_one_address_make_room_among_themselves(address: str) -> None:
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connected(address)) for _ in range(25)]  # of the 30 of all, of the 20 of one
        assert answer(silent[0]) == b"", "it was cut off, and did not wait for its time-out"


@pytest.mark.parametrize(
    "filling", [b"1;" + b"e" * 400_000, b"0\r\n" + b"X-A: b\r\n" * 50_000], ids=["sizes", "trailers"]
)
def test_a_body_of_nothing_but_framing_is_refused(address: str, filling: bytes) -> None:
    with connected(address) as barren:
        barren.sendall(head(address, "Transfer-Encoding: chunked\r\n\r\n", "POST", "/sign-in"))
        with contextlib.suppress(ConnectionError):
            barren.sendall(filling)
        assert b" 400 " in answer(barren)


def test_silent_connections_make_room_and_health_is_answered(address: str) -> None:
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connected(address)) for _ in range(100)]
        assert httpx.get(f"{address}/healthz", timeout=5).text == "ok"
        # The oldest had to go, although it was not silent for long.
        silent[0].settimeout(2)
        assert answer(silent[0]) == b""


def test_slow_bodies_make_room_too(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_STALLED_S", 30.0)
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            slow = stack.enter_context(connected(address))
            slow.sendall(head(address, "Content-Length: 1000\r\n\r\nsome", "POST", "/sign-in"))
        assert httpx.get(f"{address}/healthz", timeout=5).text == "ok"


def test_a_connection_is_kept_while_its_client_asks(address: str) -> None:
    with Visit(base_url=address) as visit:
        for _ in range(5):
            assert visit.see("/healthz") == "ok"
        for _ in range(3):
            assert "<html" in visit.see("/tenants")


def test_more_silent_connections_than_open_files_do_not_shut_the_dashboard(house: House, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    try:
        with worker(house.settings, tmp_path, "dashboard") as process, contextlib.ExitStack() as stack:
            process.wait_until_started()
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            address = next(word for word in process.log.split('"') if word.startswith("http://127.0.0.1:"))
            for _ in range(1200):
                stack.enter_context(connected(address))
            assert httpx.get(f"{address}/healthz", timeout=5).text == "ok"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_handshakes_that_never_end_have_a_deadline_and_places(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HANDSHAKE_WITHIN_S", 0.5)
    certificate, key = make_certificate(tmp_path)
    changed = {
        "dashboard_tls_certificate": str(certificate),
        "dashboard_tls_key": str(key),
        "dashboard_max_connections_per_address": 20,
    }
    with serving(house.settings.model_copy(update=changed)) as address:
        trusting = ssl.create_default_context(cafile=str(certificate))
        with contextlib.ExitStack() as stack:
            silent = [stack.enter_context(connected(address)) for _ in range(60)]
            with httpx.Client(verify=trusting) as visit:
                assert visit.get(f"{address}/healthz").text == "ok"
                assert visit.get(f"{address}/tenants").status_code == 200
            silent[-1].settimeout(5)
            assert answer(silent[-1]) == b""


def test_a_client_that_does_not_take_its_answer_is_cut_off(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ANSWER_STALLED_S", 0.3)
    with serving(house.settings) as address, connected(address) as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = head(address, "\r\n", path="/api/v1/openapi.json")

        def is_cut_off() -> bool:
            try:
                stuck.sendall(request)
            except (ConnectionError, TimeoutError):
                return True
            return False

        stuck.settimeout(0.5)
        eventually(is_cut_off, "it is cut off", within_s=30)
        assert httpx.get(f"{address}/healthz").text == "ok"
