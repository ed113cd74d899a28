"""The page at /live in a real browser: devices are seen to move, and a server that restarts is found again.

LIVE_SCREENSHOTS=FOLDER keeps what it looked like.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clientmgr.base.settings import Settings
from clientmgr.live.tokens import make_token
from clientmgr.local.embedded.server import free_port
from tests.browser import HOW_TO_GET_IT, Browser, browsing, find_chromium
from tests.live.stream import Stream, record
from tests.streaming.processes import COMMAND, worker
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(find_chromium() is None, reason=HOW_TO_GET_IT)

POSITIONS = """Object.fromEntries([...document.querySelectorAll("#rows tr")].map(
    (row) => [row.dataset.device, row.children[1].textContent + " " + row.children[2].textContent]))"""


def state(page: Browser) -> str:
    return str(page.evaluate('document.getElementById("state")?.dataset.state ?? ""'))


def state_text(page: Browser) -> str:
    return str(page.evaluate('document.getElementById("state")?.textContent ?? ""'))


def positions(page: Browser) -> dict[str, str]:
    found: dict[str, str] = page.evaluate(POSITIONS)
    return found


def frames_per_second(page: Browser) -> float:
    return float(page.evaluate('document.getElementById("rate").textContent'))


def watched_events(page: Browser) -> set[str]:
    """By the names of the devices. One of the regatta takes part in the night ride too."""
    return {device[:-4] for device in positions(page)}


def drawn(page: Browser) -> int:
    """How many different colours the map shows: an empty one has a few."""
    pixels = """(() => { const map = document.getElementById("map");
        const data = map.getContext("2d").getImageData(0, 0, map.width, map.height).data;
        const colours = new Set();
        for (let i = 0; i < data.length; i += 4) colours.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
        return colours.size; })()"""
    return int(page.evaluate(pixels))


@contextmanager
def moving_fleet(settings: Settings) -> Iterator[None]:
    """`clientmgr live fleet`, as the demo runs it, but in more of a hurry."""
    command = [*COMMAND[:-1], "live", "fleet", "--devices", "30", "--rate", "3"]
    process = subprocess.Popen(command, env={**os.environ, **settings.environment()}, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait(30)


def everything_moves(page: Browser) -> None:
    before = eventually(lambda: positions(page), "devices are shown")

    def all_elsewhere() -> bool:
        now = positions(page)
        return all(now[device] != place for device, place in before.items())

    eventually(all_elsewhere, "every device has moved")


LISTEN = """import("/live/client.js").then(({ LiveClient }) => {
    window.heard = [];
    const live = new LiveClient(`ws://${location.host}/ws`);
    live.onState = (state) => { window.state = state; };
    live.subscribe("event:E1", { onPosition: (position) => window.heard.push(position.lat),
        onSnapshot: (_positions, complete) => { window.complete = complete; } });
})"""


def test_after_an_outage_the_client_gets_what_it_missed_once_and_who_left_leaves_the_map(
    stream: Stream, tmp_path: Path
) -> None:
    settings = stream.settings.model_copy(
        update={"live_ws_port": free_port(), "live_auth": "off", "live_history_s": 600.0}
    )
    stream.enter("E1", ["stays", "leaves"])
    with worker(settings, tmp_path, "broadcast") as server, browsing(tmp_path) as page:
        server.wait_until_started()
        stream.add(record("stays"), record("leaves"))
        page.open(f"http://127.0.0.1:{settings.live_ws_port}/live?event=E1", width=800, height=600)
        eventually(lambda: positions(page).keys() == {"stays", "leaves"}, "both are shown")
        page.evaluate(LISTEN)
        eventually(lambda: page.evaluate("window.state") == "live", "the client is live")
        stream.add(record("stays", latitude=1.0))
        eventually(lambda: page.evaluate("window.heard") == [1.0], "it hears")

        server.send(signal.SIGTERM)
        server.wait()
        stream.withdraw("leaves")
        a_second_ago = datetime.now(UTC) - timedelta(seconds=1)
        stream.add(record("stays", latitude=2.0, at=a_second_ago), record("stays", latitude=3.0))
        with worker(settings, tmp_path, "broadcast"):
            eventually(lambda: positions(page).keys() == {"stays"}, "one is left")
            eventually(lambda: page.evaluate("window.heard") == [1.0, 2.0, 3.0], "it got what it missed, once")
            assert page.evaluate("window.complete") is True
        assert page.errors == []


def test_a_page_whose_token_does_not_allow_the_event_does_not_call_itself_live(stream: Stream, tmp_path: Path) -> None:
    settings = stream.settings.model_copy(update={"live_ws_port": free_port()})
    token = make_token(settings.live_token_key.get_secret_value().encode(), ["E1"], 60)
    with worker(settings, tmp_path, "broadcast") as server, browsing(tmp_path) as page:
        server.wait_until_started()
        page.open(f"http://127.0.0.1:{settings.live_ws_port}/live?event=E2#token={token}", width=800, height=600)
        eventually(lambda: "does not allow event:E2" in state_text(page), "the page says why")
        assert state(page) == "refused"


def test_devices_move_and_a_server_that_restarts_is_found_again(stream: Stream, tmp_path: Path) -> None:
    folder = Path(os.environ.get("LIVE_SCREENSHOTS") or tmp_path)
    settings = stream.settings.model_copy(update={"live_ws_port": free_port(), "live_auth": "off"})
    url = f"http://127.0.0.1:{settings.live_ws_port}/live"
    with (
        worker(settings, tmp_path, "broadcast") as server,
        moving_fleet(settings),
        browsing(tmp_path) as page,
    ):
        server.wait_until_started()
        page.open(url, width=1280, height=800)
        eventually(lambda: state(page) == "live", "the page is live")
        everything_moves(page)
        assert page.evaluate('document.getElementById("event").options.length') == 3
        assert drawn(page) > 50
        eventually(lambda: frames_per_second(page) > 0, "frames are counted")
        page.screenshot(folder / "live.png")

        server.kill()
        eventually(lambda: state(page) == "connecting", "the page knows that the server is gone")
        with worker(settings, tmp_path, "broadcast") as again:
            eventually(lambda: state(page) == "live" or not again.running, "the page is live again")
            everything_moves(page)

            page.evaluate("""(() => { const picker = document.getElementById("event");
                picker.value = "night-ride"; picker.dispatchEvent(new Event("change")); })()""")
            eventually(lambda: watched_events(page) == {"night-ride", "alster-regatta"}, "the other event is shown")
            page.open(url, width=390, height=844, mobile=True, dark=True)
            eventually(lambda: state(page) == "live", "the page is live on a phone")
            everything_moves(page)
            eventually(lambda: frames_per_second(page) > 0, "frames are counted")
            page.screenshot(folder / "live-phone.png")
        assert page.errors == []
