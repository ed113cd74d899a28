"""A broadcast instance: listener, reader and map, started together and stopped in order."""

import asyncio
import contextlib
import resource
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from websockets.frames import CloseCode

from clientmgr.base.async_main import run_until_stopped
from clientmgr.base.database import Database
from clientmgr.base.listening import in_url, listening
from clientmgr.base.logs import configure_logging, get_logger
from clientmgr.base.metrics_server import serve_metrics
from clientmgr.base.settings import Settings
from clientmgr.live.redis_stream import instance_id
from clientmgr.live.tokens import token_key
from streaming.live.broadcast.commands import send_snapshots
from streaming.live.broadcast.connection import SPARE_CONNECTIONS, Connection
from streaming.live.broadcast.fanout import Fanout
from streaming.live.broadcast.hub import Hub
from streaming.live.broadcast.last_positions import LastPositions
from streaming.live.broadcast.participants import Participants
from streaming.live.broadcast.reader import StreamReader
from streaming.live.broadcast.send_ring import open_ring
from streaming.live.broadcast.topics import TopicRegistry
from streaming.live.telemetry.writer import write_until_stopped

log = get_logger(__name__)

NAME = "broadcast"
LOOK_EVERY_S = 1.0
GOODBYE_WITHIN_S = 2.0
MAP_WITHIN_S = 5.0
BACKLOG = 1024
OTHER_FILES = 128
"""Redis, PostgreSQL, logs, and whatever libraries open."""
SEND_BUFFER = 64 * 1024
"""Of the kernel, per connection. By default it would take minutes of positions from us for a client that is gone."""
UNSENT_IN_KERNEL = 8 * 1024
"""Beyond what is on its way, the kernel takes so much from us: what waits with us can still be replaced by newer."""

Ready = Callable[[int], None]


def run_broadcast(settings: Settings, *, with_writer: bool = False) -> int:
    """Run an instance as a process, alone or together with a durable writer."""
    configure_logging(settings, process="live" if with_writer else NAME)

    async def main(stop: asyncio.Event) -> None:
        async with serve_metrics(settings):
            if with_writer:
                await broadcast_and_write(settings, stop)
            else:
                await broadcast_until_stopped(settings, stop)

    return run_until_stopped(main)


async def broadcast_and_write(settings: Settings, stop: asyncio.Event) -> None:
    """Both in one process. Told to stop, the WebSockets end first, then the reader, and the durable writer last."""
    stop_writing = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write_until_stopped(settings, stop_writing))
        try:
            await broadcast_until_stopped(settings, stop)
        finally:
            stop_writing.set()


async def broadcast_until_stopped(settings: Settings, stop: asyncio.Event, on_ready: Ready = lambda _: None) -> None:
    """Serve until `stop` is set. `on_ready` is told the port."""
    loop = asyncio.get_running_loop()
    instance = instance_id(settings)
    participants = Participants(Database.from_settings(settings), settings.live_device_event_refresh_ms / 1000)
    topics = TopicRegistry(settings.live_topics_warning)
    last_positions = LastPositions(settings.redis_telemetry_stream, settings.telemetry_retention_days)
    ring = open_ring() if settings.live_io_uring else None
    fanout = Fanout(instance, participants, topics, last_positions, ring)
    reader = StreamReader(settings, instance, last_positions, fanout.broadcast)

    def problem() -> str:
        return reader.problem() or ("" if participants.loaded.is_set() else "who takes part is not known yet")

    hub = Hub(settings, instance, token_key(settings), participants, topics, last_positions, problem, loop)
    if settings.live_auth == "off":
        log.warning("LIVE_AUTH is off: whoever can connect may watch every event")
    with _listener(settings) as listener, contextlib.nullcontext() if ring is None else contextlib.closing(ring):
        async with _running(participants.run()), _running(reader.run()):
            # A page that is there before the map would show nothing; a database that is away must not keep us from it.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MAP_WITHIN_S):
                    await participants.loaded.wait()
                    await reader.reading.wait()
            is_late = bool(problem())
            async with _serving(hub, listener), _running(_look_after_connections(hub)):
                port = listener.getsockname()[1]
                url = f"http://{in_url(settings.live_ws_host)}:{port}/live"
                log.info("daemon started", daemon=NAME, instance=instance, url=url, io_uring=ring is not None)
                on_ready(port)
                async with _running(_tell_once_known(hub, reader)) if is_late else contextlib.nullcontext():
                    await stop.wait()
    log.info("daemon stopped", daemon=NAME)


@contextlib.asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run something meanwhile. Should it fail, so do we."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work)
        yield
        task.cancel()


@contextlib.asynccontextmanager
async def _serving(hub: Hub, listener: socket.socket) -> AsyncIterator[None]:
    server = await hub.loop.create_server(lambda: Connection(hub), sock=listener, backlog=BACKLOG)
    try:
        yield
    finally:
        server.close()
        if not hub.transports:
            hub.everybody_left.set()
        for connection in list(hub.transports):
            connection.close(CloseCode.GOING_AWAY, "the server is stopping")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_WITHIN_S):
                await hub.everybody_left.wait()


async def _tell_once_known(hub: Hub, reader: StreamReader) -> None:
    """Whoever subscribed while the database or Redis was away got an empty snapshot."""
    await hub.participants.loaded.wait()
    await reader.reading.wait()
    send_snapshots(hub)


async def _look_after_connections(hub: Hub) -> None:
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        now, wall_clock = hub.loop.time(), time.time()
        for connection in list(hub.transports):
            connection.look(now, wall_clock)


@contextlib.contextmanager
def _listener(settings: Settings) -> Any:
    _allow_open_files(settings.live_ws_max_connections + SPARE_CONNECTIONS + OTHER_FILES)
    names = "LIVE_WS_HOST, LIVE_WS_PORT"
    with listening(settings.live_ws_host, settings.live_ws_port, settings=names, backlog=BACKLOG) as listener:
        # Both are handed on to the connections.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_IN_KERNEL)
        yield listener


def _allow_open_files(wanted: int) -> None:
    """Every connection is an open file, and many systems allow 1,024 of them unless asked."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if possible > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
    if possible < wanted and soft < wanted:
        log.warning("fewer connections than LIVE_WS_MAX_CONNECTIONS are possible", open_files=possible)
