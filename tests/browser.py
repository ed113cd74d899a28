"""A headless Chromium, driven by its own debugging protocol: what a person sees, and what a person clicks."""

import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.waiting import eventually

NAMES = ("chromium", "chromium-browser", "google-chrome")
HOW_TO_GET_IT = "no Chromium here: install Debian's package `chromium`, or say in CHROMIUM where one is"

# Elements that can be clicked and are to be seen, by their text.
_CLICKABLE = """
[...document.querySelectorAll('button, a, [role=button], [role=menuitem], [role=tab]')]
    .filter(e => e.innerText.trim().startsWith(%s) && e.offsetParent !== null && !e.disabled)
"""


def find_chromium() -> str | None:
    """CHROMIUM, or the first one on PATH."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)

    def text(self) -> str:
        """All text that is to be seen."""
        return str(self.evaluate("document.body ? document.body.innerText : ''"))

    def wait_for(self, *texts: str, within_s: float = 60.0) -> None:
        """Until all of `texts` are to be seen."""
        eventually(lambda: all(text in self.text() for text in texts), f"{texts} on the page", within_s=within_s)

    def click(self, text: str, *, within_s: float = 30.0) -> None:
        """Click the button or link that begins with `text`, as soon as it is there and enabled."""
        elements = _CLICKABLE % json.dumps(text)
        click = f"(() => {{ const found = {elements}; if (found.length) found[0].click(); return found.length }})()"
        eventually(lambda: self.evaluate(click), f"a button {text!r} on the page", within_s=within_s)

    def evaluate(self, javascript: str) -> Any:
        answer = self._call("Runtime.evaluate", expression=javascript, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot")["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._socket.recv(timeout=60))
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result


@contextmanager
def running_browser(executable: str, folder: Path) -> Iterator[Browser]:
    """A browser with a profile of its own in `folder`; at the end nothing of it is left running."""
    # Chromium's sandbox does not work as root, nor in most containers; the only page it is shown is our own.
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]
    places = ["--remote-debugging-port=0", f"--user-data-dir={folder}", "--window-size=1600,1200"]
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            [executable, *options, *places, "about:blank"], stdout=log, stderr=log, start_new_session=True
        )
    try:
        port_file = folder / "DevToolsActivePort"
        eventually(lambda: port_file.exists() and port_file.read_text(), "Chromium listens")
        port = port_file.read_text().split("\n")[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=30) as answer:  # our own
            page = next(target for target in json.load(answer) if target["type"] == "page")
        with connect(page["webSocketDebuggerUrl"], max_size=None, compression=None) as socket:
            yield Browser(socket)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
