"""Those who watch, as a program of their own: many plain sockets, frames counted, lag taken from a few of them.

Viewers have machines of their own, and these here take the server's processors. So only those whose lag is taken read
at once; the others' frames wait in the kernel, and are read and counted some times a second.

Prints `ready` when all are subscribed, and a report as JSON when all expected frames have come.
"""

import json
import os
import re
import selectors
import socket
import sys
import time
from dataclasses import asdict

from websockets.frames import Frame, Opcode

from bench.broadcast.task import Report, Task

MARK = b'"type":"position"'
TIME = re.compile(rb'"ts":(\d{13})')
SAMPLED = 20
PATIENCE_S = 15.0
OTHERS_EVERY_S = 0.25
HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Viewer:
    """One connection."""

    def __init__(self, task: Task, number: int, *, sampled: bool) -> None:
        self.socket = socket.socket()
        if task.bytes_per_second:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(("127.0.0.1", task.port))
        self.socket.sendall(HANDSHAKE)
        self._received = b""
        self._until(b"\r\n\r\n")
        text = json.dumps({"type": "subscribe", "topic": f"event:E{number % task.events}"}, separators=(",", ":"))
        self.socket.sendall(Frame(Opcode.TEXT, text.encode()).serialize(mask=True))
        self._until(b'"snapshot":[]}')
        self.socket.setblocking(False)
        self._tail = self._time_tail = b""
        self.sampled = sampled

    def _until(self, end: bytes) -> None:
        while not self._received.endswith(end):
            data = self.socket.recv(4096)
            if not data:
                raise ConnectionError("hung up on")
            self._received += data

    def read(self, most: int, lags_ms: list[float]) -> int:
        """How many frames came."""
        try:
            data = self.socket.recv(most)
        except BlockingIOError:
            return 0
        if not data:
            raise ConnectionError("hung up on")
        # A mark, or a time, may be cut in two by the end of a read: what is kept of one is too short to hold a whole.
        text = self._tail + data
        if self.sampled:
            now_ms = time.time() * 1000
            lags_ms.extend(now_ms - int(found) for found in TIME.findall(self._time_tail + data))
            self._time_tail = data[-17:]
        self._tail = text[1 - len(MARK) :]
        return text.count(MARK)


class Others:
    """Those whose lag nobody takes: a few of them at a time, so that those whose is taken hardly wait."""

    def __init__(self, viewers: list[Viewer]) -> None:
        self._viewers = viewers
        self._next = 0
        self._read_at = time.monotonic()

    def read(self, most: int) -> int:
        due = min(int((time.monotonic() - self._read_at) / OTHERS_EVERY_S * len(self._viewers)), len(self._viewers))
        if not due:
            return 0
        self._read_at = time.monotonic()
        frames = 0
        for _ in range(due):
            frames += self._viewers[self._next].read(most, [])
            self._next = (self._next + 1) % len(self._viewers)
        return frames


def watch(task: Task) -> Report:
    every = max(1, task.connections // SAMPLED)
    # One after the other: most servers send in the order in which viewers came, and the first would always be early.
    everybody = [Viewer(task, number, sampled=task.lags and not number % every) for number in range(task.connections)]
    viewers = everybody[::every]
    others = Others([viewer for number, viewer in enumerate(everybody) if number % every])
    stalled = [Viewer(task, 0, sampled=False) for _ in range(task.stalled)]
    selector = selectors.DefaultSelector()
    for viewer in viewers:
        selector.register(viewer.socket, selectors.EVENT_READ, viewer)
    print("ready", flush=True)
    cpu_before = sum(os.times()[:2])
    lags_ms: list[float] = []
    frames = 0
    ends_at = time.monotonic() + (task.seconds or PATIENCE_S)
    most = task.bytes_per_second // 10 or 262_144
    while time.monotonic() < ends_at and (not task.expected or frames < task.expected):
        readable = selector.select(timeout=OTHERS_EVERY_S / 25)
        arrived = sum(key.data.read(most, lags_ms) for key, _ in readable)
        arrived += others.read(most)
        frames += arrived
        if arrived and task.expected:
            ends_at = time.monotonic() + PATIENCE_S
        if task.bytes_per_second:
            time.sleep(0.1)
    del stalled
    return Report(frames, sorted(lags_ms), sum(os.times()[:2]) - cpu_before)


if __name__ == "__main__":
    print(json.dumps(asdict(watch(Task(**json.loads(sys.argv[1]))))), flush=True)
