"""A broadcast instance in the test's own event loop, and those who watch it."""

import asyncio
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from prometheus_client import REGISTRY, generate_latest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from clientmgr.base.settings import Settings
from clientmgr.live.tokens import make_token
from streaming.live.broadcast.server import broadcast_until_stopped

WITHIN_S = 20.0


@dataclass
class Served:
    """A running instance."""

    settings: Settings
    port: int

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/ws"

    async def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, str, dict[str, str]]:
        """Status, text and headers of a plain request."""

        def fetch() -> tuple[int, str, dict[str, str]]:
            request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers or {})
            try:
                with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310  # our own server
                    return response.status, response.read().decode(), dict(response.headers)
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read().decode(), dict(error.headers)

        return await asyncio.to_thread(fetch)

    async def metric(self, name: str, **labels: str) -> float:
        """The value of a metric of this instance; 0 while it has none."""
        await asyncio.sleep(0)  # the instance runs in our event loop
        # Of all metrics it takes half of the time between two looks.
        text = generate_latest(REGISTRY.restricted_registry([name])).decode()
        wanted = "".join(f'(?=.*{label}="{re.escape(value)}")' for label, value in labels.items())
        found = re.search(rf"^{name}(?:\{{{wanted}.*\}})? (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0


class Watcher:
    """A client that reads JSON."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def say(self, message: object) -> None:
        await self.socket.send(message if isinstance(message, (str, bytes)) else json.dumps(message))

    async def hear(self) -> dict[str, Any]:
        async with asyncio.timeout(WITHIN_S):
            heard: dict[str, Any] = json.loads(await self.socket.recv())
            return heard

    async def ask(self, message: object) -> dict[str, Any]:
        """Say something and hear the answer, which must be the next that comes."""
        await self.say(message)
        return await self.hear()

    async def subscribe(self, event: str) -> list[dict[str, Any]]:
        """Returns the snapshot."""
        answer = await self.ask({"type": "subscribe", "topic": f"event:{event}"})
        assert (answer["type"], answer["topic"]) == ("subscribed", f"event:{event}"), answer
        snapshot: list[dict[str, Any]] = answer["snapshot"]
        return snapshot

    async def positions(self, count: int) -> list[dict[str, Any]]:
        heard = [await self.hear() for _ in range(count)]
        assert {message["type"] for message in heard} == {"position"}, heard
        return heard

    async def closed(self) -> tuple[int, str]:
        """How the server closes the connection."""
        async with asyncio.timeout(WITHIN_S):
            try:
                while True:
                    await self.socket.recv()
            except ConnectionClosed as end:
                # 1006, by the protocol, where there was no close frame.
                return (end.rcvd.code, end.rcvd.reason) if end.rcvd else (1006, "")


async def until(look: Callable[[], Awaitable[object]], what: str, *, within_s: float = WITHIN_S) -> None:
    """Wait until `look` finds something true; fails by the name of `what` after the deadline."""
    deadline = time.monotonic() + within_s
    while True:
        if await look():
            return
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s: {what}"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def serving(settings: Settings, **changes: object) -> AsyncIterator[Served]:
    """An instance, up and reading; told to stop at the end, and given the time it needs."""
    settings = settings.model_copy(update=changes)
    stop = asyncio.Event()
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(broadcast_until_stopped(settings, stop, ready.set_result))
        try:
            yield Served(settings, await ready)
        finally:
            stop.set()


@asynccontextmanager
async def watching(
    served: Served, *events: str, token: str | None = None, origin: str | None = None
) -> AsyncIterator[Watcher]:
    """A client that may see everything, or what `token` allows (empty: it has none), subscribed to `events`."""
    if token is None:
        token = make_token(served.settings.live_token_key.get_secret_value().encode(), ["*"], 60)
    url = f"{served.url}?token={token}" if token else served.url
    headers = {"Origin": origin} if origin else None
    async with connect(url, additional_headers=headers, proxy=None, close_timeout=1) as socket:
        watcher = Watcher(socket)
        for event in events:
            await watcher.subscribe(event)
        yield watcher
