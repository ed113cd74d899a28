"""Metrics and health over HTTP, as a daemon serves them."""

import asyncio
import contextlib
import select
import socket
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import Counter

from clientmgr.base import metrics_server
from clientmgr.base.errors import SettingsError
from clientmgr.base.metrics_server import serve_metrics
from clientmgr.base.settings import Settings, load_settings
from clientmgr.local.embedded.server import free_port
from tests.keys import TEST_KEY as TOKEN
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

SEEN = Counter("clientmgr_test_seen_total", "Of this test.")


@pytest.fixture
def settings() -> Settings:
    return load_settings(metrics_port=free_port())


def fetch(
    settings: Settings, path: str, *, host: str = "127.0.0.1", headers: dict[str, str] | None = None
) -> tuple[int, str]:
    request = urllib.request.Request(f"http://{host}:{settings.metrics_port}{path}", headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310  # ours
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def test_what_was_counted_is_served(settings: Settings) -> None:
    SEEN.inc(3)
    async with serve_metrics(settings):
        status, text = await asyncio.to_thread(fetch, settings, "/metrics")
    assert status == 200
    assert "clientmgr_test_seen_total 3.0" in text.splitlines()


async def test_a_loop_that_turns_is_healthy_and_one_that_is_stuck_is_not(settings: Settings) -> None:
    async with serve_metrics(settings, stuck_after_s=1.5):
        assert await asyncio.to_thread(fetch, settings, "/healthz") == (200, "ok")
        with ThreadPoolExecutor(1) as elsewhere:
            # Waiting for a thread is what an event loop must never do.
            assert elsewhere.submit(_when_unhealthy, settings).result(30) == "not well"


async def test_nothing_else_is_served(settings: Settings) -> None:
    async with serve_metrics(settings):
        assert (await asyncio.to_thread(fetch, settings, "/"))[0] == 404


async def test_the_port_is_free_again_afterwards(settings: Settings) -> None:
    for _ in range(2):
        async with serve_metrics(settings):
            assert (await asyncio.to_thread(fetch, settings, "/healthz"))[0] == 200


async def test_a_taken_port_is_named(settings: Settings) -> None:
    async with serve_metrics(settings):
        with pytest.raises(SettingsError, match=f"METRICS_PORT: expected a free port, got {settings.metrics_port}"):
            async with serve_metrics(settings):
                pass


async def test_an_address_that_is_not_ours_is_named() -> None:
    settings = load_settings(metrics_port=free_port(), metrics_host="192.0.2.1", metrics_token=TOKEN)
    with pytest.raises(SettingsError, match=r"METRICS_HOST: expected an address of this machine, got '192\.0\.2\.1'"):
        async with serve_metrics(settings):
            pass


async def test_metrics_are_served_where_the_setting_says() -> None:
    everywhere = load_settings(metrics_port=free_port(), metrics_host="0.0.0.0", metrics_token=TOKEN)  # noqa: S104
    async with serve_metrics(everywhere):
        assert await asyncio.to_thread(fetch, everywhere, "/healthz", host="127.0.0.2") == (200, "ok")
    loopback = load_settings(metrics_port=free_port())
    async with serve_metrics(loopback):
        with pytest.raises(urllib.error.URLError):
            await asyncio.to_thread(fetch, loopback, "/healthz", host="127.0.0.2")


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.0.2.1", "metrics.internal"])  # noqa: S104
async def test_an_address_that_others_reach_is_refused_without_a_token(host: str) -> None:
    with pytest.raises(SettingsError, match=r"METRICS_HOST: .* can be reached by others.* set METRICS_TOKEN"):
        async with serve_metrics(load_settings(metrics_port=free_port(), metrics_host=host)):
            pass


async def test_with_a_token_metrics_are_for_who_sends_it_and_health_is_for_all() -> None:
    settings = load_settings(metrics_port=free_port(), metrics_token=TOKEN)

    async def scrape(authorization: str | None) -> int:
        headers = {"Authorization": authorization} if authorization is not None else {}
        return (await asyncio.to_thread(fetch, settings, "/metrics", headers=headers))[0]

    async with serve_metrics(settings):
        assert await scrape(f"Bearer {TOKEN}") == 200
        assert await scrape(f"bearer {TOKEN}") == 200, "a scheme's case does not count"
        for wrong in ("Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN, "Bearer \u00e9"):
            assert await scrape(wrong) == 401, wrong
        assert await scrape(None) == 401
        assert await asyncio.to_thread(fetch, settings, "/healthz") == (200, "ok")


async def test_a_page_whose_name_leads_here_reads_nothing(settings: Settings) -> None:
    async with serve_metrics(settings):
        for host in ("evil.example", f"evil.example:{settings.metrics_port}", "127.0.0.1.evil.example", "[::1", ""):
            for path in ("/metrics", "/healthz"):
                answer = await asyncio.to_thread(fetch, settings, path, headers={"Host": host})
                assert answer == (421, "this is not the address of the metrics"), host
        for host in ("localhost", f"LOCALHOST:{settings.metrics_port}", "[::1]:9100", "127.0.0.1"):
            answer = await asyncio.to_thread(fetch, settings, "/healthz", headers={"Host": host})
            assert answer == (200, "ok"), host


def connected(settings: Settings, sent: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", settings.metrics_port), timeout=10)
    connection.sendall(sent)
    return connection


def still_open(connections: list[socket.socket]) -> int:
    """Those that the server has neither answered nor closed."""
    return len(connections) - len(select.select(connections, [], [], 0)[0])


@pytest.mark.parametrize("sent", [b"", b"G", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"])
async def test_idle_connections_take_few_places_and_a_scrape_among_them_is_answered(
    settings: Settings, sent: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    threads_before = threading.active_count()
    with contextlib.ExitStack() as opened:
        async with serve_metrics(settings):
            idle, most_threads = [], 0
            for _ in range(200):
                idle.append(opened.enter_context(connected(settings, sent)))
                most_threads = max(most_threads, threading.active_count() - threads_before)
            assert (await asyncio.to_thread(fetch, settings, "/metrics"))[0] == 200
            assert (await asyncio.to_thread(fetch, settings, "/healthz")) == (200, "ok")
            eventually(lambda: still_open(idle) <= 16, "the oldest are cut off")
            assert still_open(idle[-10:]) == 10, "the newest stay"
            assert most_threads < 25
    assert "Traceback" not in "".join(capfd.readouterr())


async def test_who_is_answered_keeps_the_place_however_many_come(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, may_answer = threading.Event(), threading.Event()

    def slowly(_registry: object) -> bytes:
        asked.set()
        may_answer.wait(10)
        return b"late"

    monkeypatch.setattr(metrics_server, "choose_encoder", lambda _accept: (slowly, "text/plain"))
    with contextlib.ExitStack() as opened:
        async with serve_metrics(settings):
            scrape = asyncio.create_task(asyncio.to_thread(fetch, settings, "/metrics"))
            await asyncio.to_thread(asked.wait, 10)
            idle = [opened.enter_context(connected(settings, b"G")) for _ in range(40)]
            eventually(lambda: still_open(idle) <= 16, "the oldest are cut off")
            may_answer.set()
            assert await scrape == (200, "late")


async def test_a_request_that_comes_byte_by_byte_is_cut_off_in_time(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "REQUEST_WITHIN_S", 0.5)

    def drip(connection: socket.socket) -> bool:
        """Whether it ends within 5 s."""
        for _ in range(50):
            if select.select([connection], [], [], 0.1)[0]:
                return True
            connection.sendall(b"x")
        return False

    async with serve_metrics(settings):
        with connected(settings, b"GET /metrics HTTP/1.1\r\nX: ") as connection:
            assert await asyncio.to_thread(drip, connection)


async def test_without_a_port_nothing_is_served() -> None:
    async with serve_metrics(load_settings()):
        pass


def _when_unhealthy(settings: Settings) -> str:
    """What `/healthz` says once it is not well."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        status, text = fetch(settings, "/healthz")
        if status == 503:
            return text
        time.sleep(0.05)
    return ""
