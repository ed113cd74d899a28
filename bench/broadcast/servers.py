"""Who is compared: our instance as operators run it, Node's ws, Python's websockets, and plain sockets as the limit."""

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psutil  # type: ignore[import-untyped]  # it ships no types

from bench.harness.keys import BENCH_KEY
from bench.harness.options import REPOSITORY, peers_node
from clientmgr.local.embedded.server import free_port

NODE_PEER = REPOSITORY / "bench" / "peers" / "broadcast"
START_WITHIN_S = 60.0


@dataclass(frozen=True)
class Place:
    """Where a server finds its data."""

    database_url: str
    redis_url: str
    stream: str
    events: int
    data_dir: str


@dataclass(frozen=True)
class Running:
    """A server at work."""

    port: int
    process: psutil.Process

    def cpu_seconds(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)


@dataclass(frozen=True)
class Server:
    """One to compare."""

    name: str
    start: Callable[[Place], contextlib.AbstractContextManager[Running]]


def _ours(**settings: str) -> Callable[[Place], contextlib.AbstractContextManager[Running]]:
    return functools.partial(_our_instance, settings)


@contextlib.contextmanager
def _our_instance(settings: dict[str, str], place: Place) -> Iterator[Running]:
    port = free_port()
    environment = {
        **os.environ,
        "DATABASE_URL": place.database_url,
        "REDIS_URL": place.redis_url,
        "REDIS_TELEMETRY_STREAM": place.stream,
        "DATA_DIR": place.data_dir,
        "LIVE_WS_PORT": str(port),
        "LIVE_AUTH": "off",
        # All viewers come from one address, many at once.
        "LIVE_WS_MAX_CONNECTIONS_PER_ADDRESS": "100000",
        "LIVE_WS_MAX_UNAUTHENTICATED": "10000",
        "LIVE_WS_MAX_UNAUTHENTICATED_PER_ADDRESS": "10000",
        "LOG_LEVEL": "error",
        "AUDIT_HASH_KEY": BENCH_KEY,
        **settings,
    }
    with _process([sys.executable, "-m", "clientmgr", "run", "broadcast"], environment) as process:
        deadline = time.monotonic() + START_WITHIN_S
        while not _healthy(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("our instance did not start")
            time.sleep(0.05)
        yield Running(port, psutil.Process(process.pid))


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _telling_its_port(*command: str) -> Callable[[Place], contextlib.AbstractContextManager[Running]]:
    @contextlib.contextmanager
    def start(place: Place) -> Iterator[Running]:
        arguments = [*command, place.redis_url, place.stream, str(place.events)]
        with _process(arguments, {**os.environ, "PYTHONPATH": str(REPOSITORY)}) as process:
            assert process.stdout is not None
            yield Running(int(process.stdout.readline()), psutil.Process(process.pid))

    return start


@contextlib.contextmanager
def _process(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, env=environment, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


OURS = Server("ours", _ours())
OURS_WITH_TICK = Server("ours, 20 ms tick", _ours(LIVE_BROADCAST_TICK_MS="20"))
WEBSOCKETS = Server("websockets", _telling_its_port(sys.executable, "-m", "bench.broadcast.python_websockets"))
LIMIT = Server("limit: plain sockets", _telling_its_port(sys.executable, "-m", "bench.broadcast.raw_sockets"))


def node_server() -> Server | None:
    """Node's ws, where `tools/setup-bench` has installed it."""
    node = peers_node() or shutil.which("node")
    if node is None or not (NODE_PEER / "node_modules" / "ws").is_dir():
        return None
    return Server("Node ws", _telling_its_port(str(node), str(NODE_PEER / "node_ws.mjs")))
