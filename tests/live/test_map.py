"""The live map in a real browser: other people's tiles, names, units, a device that is followed, the theme."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from PIL import Image

from clientmgr.base.errors import SettingsError
from clientmgr.base.settings import load_settings
from clientmgr.local.embedded.server import free_port
from streaming.live.broadcast.http import policy
from tests.browser import HOW_TO_GET_IT, Browser, browsing, find_chromium
from tests.live.stream import Stream, record
from tests.streaming.processes import worker
from tests.waiting import eventually

GREEN = (10, 200, 60)
ATTRIBUTION = "© Some <Mapmakers> & friends"
NAMES_APART = """import("/live/drawing.js").then(({ placeNames }) => {
    const crowd = [...Array(40).keys()].map((n) => ({ id: `d${n}`, x: 100 + n % 7, y: 100 + n % 5, width: 60 }));
    const apart = placeNames(crowd);
    const overlap = (a, b) => a.left <= b.right && b.left <= a.right && a.top <= b.bottom && b.top <= a.bottom;
    window.names = [apart.length, apart[0].id, apart.some((a, i) => apart.some((b, j) => i < j && overlap(a, b)))];
})"""
IN_THE_MIDDLE = """(() => { const map = document.getElementById("map");
    const { data } = map.getContext("2d").getImageData(map.width / 2 - 1, map.height / 2 - 1, 3, 3);
    return data.some((value, place) => place % 4 === 3 && value > 0); })()"""


class Tiles(ThreadingHTTPServer):
    """A tile server of somebody else's: one green square for all."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), TileHandler)
        self.asked: list[str] = []
        self.referrers: set[str | None] = set()
        picture = io.BytesIO()
        Image.new("RGB", (256, 256), GREEN).save(picture, "PNG")
        self.picture = picture.getvalue()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class TileHandler(BaseHTTPRequestHandler):
    server: Tiles

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.referrers.add(self.headers["Referer"])
        self.send_response(200)
        self.send_header("Content-Type", "image/png")
        self.send_header("Content-Length", str(len(self.server.picture)))
        self.end_headers()
        self.wfile.write(self.server.picture)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def tile_server() -> Iterator[Tiles]:
    with Tiles() as tiles:
        serving = threading.Thread(target=tiles.serve_forever)
        serving.start()
        try:
            yield tiles
        finally:
            tiles.shutdown()
            serving.join()


def colour_at(page: Browser, file: Path, x: int, y: int) -> tuple[int, ...]:
    """The tiles' canvas is not for scripts to read: others' pictures are on it."""
    page.screenshot(file)
    with Image.open(file) as picture:
        found = picture.convert("RGB").getpixel((x, y))
    assert isinstance(found, tuple)
    return found


def press(page: Browser, element: str) -> None:
    page.evaluate(f"document.getElementById('{element}').click()")


@pytest.mark.skipif(find_chromium() is None, reason=HOW_TO_GET_IT)
def test_tiles_names_units_a_followed_device_and_the_theme(stream: Stream, tmp_path: Path) -> None:
    stream.enter("E1", ["walker", "stays"])
    with tile_server() as tiles, tile_server() as others, browsing(tmp_path) as page:
        settings = stream.settings.model_copy(
            update={
                "live_ws_port": free_port(),
                "live_auth": "off",
                "live_tiles_url": f"{tiles.address}/{{z}}/{{x}}/{{y}}{{r}}.png?key=k",
                "live_tiles_attribution": ATTRIBUTION,
            }
        )
        with worker(settings, tmp_path, "broadcast") as server:
            server.wait_until_started()
            stream.add(record("walker", speed=100.0), record("stays", latitude=52.101))
            page.open(f"http://127.0.0.1:{settings.live_ws_port}/live?event=E1", width=900, height=700)
            eventually(lambda: "walker" in page.text(), "the devices are shown")
            eventually(lambda: colour_at(page, tmp_path / "page.png", 450, 690) == GREEN, "tiles are drawn")
            assert page.evaluate("document.getElementById('attribution').textContent") == ATTRIBUTION
            assert all(path.endswith(".png?key=k") and path.count("/") == 3 for path in tiles.asked)
            assert tiles.referrers == {f"http://127.0.0.1:{settings.live_ws_port}/"}, "no event, no token"

            page.evaluate(NAMES_APART)
            eventually(lambda: page.evaluate("window.names?.length") == 3, "names are placed")
            count, first, do_overlap = page.evaluate("window.names")
            assert (count > 3, first, do_overlap) == (True, "d0", False)

            speed = "document.querySelector('tr[data-device=walker]').children[3].textContent"
            eventually(lambda: page.evaluate(speed) == "100", "the speed is shown")
            page.fill("#units", "mph")
            assert page.evaluate(speed) == "62"
            assert page.evaluate("document.getElementById('speed').textContent") == "mph"

            page.evaluate("document.getElementById('list').open = false")
            page.evaluate("document.querySelector('tr[data-device=walker]').click()")
            press(page, "follow")
            asked = len(tiles.asked)
            stream.add(record("walker", latitude=48.0, longitude=11.0, speed=100.0))
            eventually(lambda: len(tiles.asked) > asked, "the map went along")
            eventually(lambda: page.evaluate(IN_THE_MIDDLE), "it is in the middle")
            assert page.evaluate("document.getElementById('follow').getAttribute('aria-pressed')") == "true"
            page.evaluate(
                "document.getElementById('map').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowLeft'}))"
            )
            assert page.evaluate("document.getElementById('follow').getAttribute('aria-pressed')") == "false"

            page.evaluate("window.postMessage({ theme: 'dark' }, '*')")
            background = "getComputedStyle(document.body).backgroundColor"
            eventually(lambda: page.evaluate(background) == "rgb(18, 22, 28)", "it is dark")
            assert page.errors == []

            page.evaluate(f"new Image().src = '{others.address}/1.png'")
            eventually(lambda: page.errors, "the policy refuses any other host")
            assert others.asked == []


def test_without_tiles_nobody_is_asked_for_pictures(stream: Stream) -> None:
    assert "img-src data:;" in policy(stream.settings)


@pytest.mark.parametrize(
    "url",
    [
        "tiles.example.com/{z}/{x}/{y}.png",
        "https://host/{z}/{x}.png",
        "https://host/{z}/{x}/{y}/{token}.png",
        "https://host;script-src *;/{z}/{x}/{y}.png",
        "https://user:password@host/{z}/{x}/{y}.png",
        "https://host/{z}/{x}/{y}.png\" onload='x",
        "https://{z}.host/{x}/{y}.png",
    ],
)
def test_a_tiles_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match=r"\{z\}/\{x\}/\{y\}"):
        load_settings(live_tiles_url=url)
