"""A headless Chromium, driven by its own debugging protocol: what a person sees, and what a person clicks."""

import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
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
[...document.querySelectorAll('button, a, summary, [role=button], [role=menuitem], [role=tab]')]
    .filter(e => e.innerText.trim().startsWith(%s) && e.offsetParent !== null && !e.disabled)
"""


def find_chromium() -> str | None:
    """CHROMIUM, or the first one on PATH."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """The browser's one tab."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.errors: list[str] = []
        """Exceptions of scripts, and what the page's own security policy refused."""
        self._session = ""
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._send("Page.enable")
        self._send("Runtime.enable")
        self._send("Log.enable")

    def open(
        self, url: str, *, width: int = 1600, height: int = 1200, mobile: bool = False, dark: bool = False
    ) -> None:
        self._send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._send("Emulation.setEmulatedMedia", features=[scheme])
        self._send("Page.navigate", url=url)

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

    def fill(self, selector: str, text: str) -> None:
        """Write into a field, or choose an option by its value."""
        self.evaluate(
            f"(() => {{ const field = document.querySelector({json.dumps(selector)}); field.value = {json.dumps(text)};"
            " field.dispatchEvent(new Event('change', {bubbles: true})) })()"
        )

    def press(self, key: str) -> None:
        """A key, or a text letter by letter: whatever has the focus gets it."""
        for one in [key] if key in ("Enter", "Escape", "Tab") else key:
            text = {"Enter": "\r"}.get(one, one if len(one) == 1 else "")
            code = {"Enter": 13, "Escape": 27, "Tab": 9}.get(one, 0)
            self._send("Input.dispatchKeyEvent", type="keyDown", key=one, text=text, windowsVirtualKeyCode=code)
            self._send("Input.dispatchKeyEvent", type="keyUp", key=one, windowsVirtualKeyCode=code)

    def evaluate(self, javascript: str) -> Any:
        answer = self._send("Runtime.evaluate", expression=javascript, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, file: Path, *, whole_page: bool = False) -> None:
        options: dict[str, Any] = {}
        if whole_page:
            size = self._send("Page.getLayoutMetrics")["cssContentSize"]
            options = {"captureBeyondViewport": True, "clip": {**size, "x": 0, "y": 0, "scale": 1}}
        file.write_bytes(base64.b64decode(self._send("Page.captureScreenshot", **options)["data"]))

    def _send(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        self._socket.send(json.dumps(message | ({"sessionId": self._session} if self._session else {})))
        while True:
            heard = json.loads(self._socket.recv(timeout=60))
            if heard.get("id") == number:
                assert "error" not in heard, heard
                result: dict[str, Any] = heard["result"]
                return result
            if heard.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(heard["params"]))
            elif heard.get("method") == "Log.entryAdded" and heard["params"]["entry"]["source"] == "security":
                self.errors.append(heard["params"]["entry"]["text"])


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """A browser with a profile of its own in `folder`; at the end nothing of it is left running."""
    command = find_chromium()
    assert command, HOW_TO_GET_IT
    # Chromium's sandbox does not work as root, nor in most containers; the only pages it is shown are our own.
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]
    profile = folder / "profile"
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            [command, *options, "--remote-debugging-port=0", f"--user-data-dir={profile}"],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        note = profile / "DevToolsActivePort"
        eventually(lambda: note.exists() and note.read_text().count("\n") == 1, "Chromium listens")
        port, path = note.read_text().split("\n")
        with connect(f"ws://127.0.0.1:{port}{path}", max_size=None, proxy=None, compression=None) as socket:
            yield Browser(socket)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
