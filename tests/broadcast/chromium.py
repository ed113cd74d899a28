"""Headless Chromium, driven over its DevTools protocol: just enough to open a page, look into it and photograph it."""

import base64
import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.browser import HOW_TO_GET_IT, find_chromium
from tests.waiting import eventually


class Page:
    """The browser's one tab."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.errors: list[str] = []
        self._session = ""
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._send("Runtime.enable")
        self._send("Log.enable")

    def open(self, url: str, *, width: int, height: int, mobile: bool = False, dark: bool = False) -> None:
        self._send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._send("Emulation.setEmulatedMedia", features=[scheme])
        self._send("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        answer = self._send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def photograph(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self._send("Page.captureScreenshot")["data"]))

    def _send(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        self._socket.send(json.dumps(message | ({"sessionId": self._session} if self._session else {})))
        while True:
            heard = json.loads(self._socket.recv(timeout=30))
            if heard.get("id") == number:
                assert "error" not in heard, heard
                result: dict[str, Any] = heard["result"]
                return result
            if heard.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(heard["params"]))
            elif heard.get("method") == "Log.entryAdded" and heard["params"]["entry"]["source"] == "security":
                self.errors.append(heard["params"]["entry"]["text"])


@contextmanager
def browsing(folder: Path) -> Iterator[Page]:
    """A browser with a profile of its own, gone at the end."""
    command = find_chromium()
    assert command, HOW_TO_GET_IT
    options = ["--headless=new", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0"]
    # Root may not have a sandbox; what is opened here is our own page.
    options += ["--no-sandbox"] if os.geteuid() == 0 else []
    with (folder / "chromium.log").open("wb") as log:
        browser = subprocess.Popen([command, *options, f"--user-data-dir={folder / 'profile'}"], stdout=log, stderr=log)
    try:
        note = folder / "profile" / "DevToolsActivePort"
        eventually(lambda: note.exists() and note.read_text().count("\n") == 1, "Chromium listens")
        port, path = note.read_text().split("\n")
        with connect(f"ws://127.0.0.1:{port}{path}", max_size=None, proxy=None) as socket:
            yield Page(socket)
    finally:
        browser.terminate()
        browser.wait(30)
