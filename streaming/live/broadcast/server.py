"""A broadcast instance: it starts the map, the reader and the WebSocket server, and stops them in reverse order."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from websockets.frames import CloseCode

from clientmgr.base.daemon_process import DaemonWork
from clientmgr.base.database import Database
from clientmgr.base.exposure import ensure_not_open_to_others
from clientmgr.base.forwarded import trusted_networks
from clientmgr.base.listening import allow_open_files, in_url, listening
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.live.redis_stream import instance_id
from clientmgr.live.tokens import token_key
from clientmgr.operations.ended_sessions import EndedSessions
from streaming.live.broadcast.admission import own_hosts
from streaming.live.broadcast.catching_up import CatchingUp
from streaming.live.broadcast.commands import send_snapshots
from streaming.live.broadcast.connection import Connection, most_connections
from streaming.live.broadcast.ended_sessions import close_ended
from streaming.live.broadcast.fanout import Fanout
from streaming.live.broadcast.history import History
from streaming.live.broadcast.hub import Hub
from streaming.live.broadcast.last_positions import LastPositions
from streaming.live.broadcast.participants import Participants
from streaming.live.broadcast.places import Places
from streaming.live.broadcast.reader import StreamReader
from streaming.live.broadcast.sending.auto import choose_sender
from streaming.live.broadcast.subscriptions import TopicRegistry

log = get_logger(__name__)

NAME = "broadcast"
CHECK_EVERY_S = 1.0
GOODBYE_WITHIN_S = 2.0
MAP_WITHIN_S = 5.0
BACKLOG = 1024
OTHER_FILES = 128
"""For Redis, PostgreSQL, logs, and what libraries open."""
SEND_BUFFER = 64 * 1024
"""The kernel's buffer of one connection. Its default would take minutes of positions for a client that is gone."""
UNSENT_IN_KERNEL = 8 * 1024
"""How much the kernel takes beyond what it is transmitting. What waits on our side can still be replaced by newer."""

Ready = Callable[[int], None]


def broadcast(settings: Settings) -> DaemonWork:
    """What an instance does in a process of its own."""
    return DaemonWork(NAME, lambda stop: broadcast_until_stopped(settings, stop))


async def broadcast_until_stopped(settings: Settings, stop: asyncio.Event, on_ready: Ready = lambda _: None) -> None:
    """Serve until `stop` is set. `on_ready` is called with the port."""
    ensure_not_open_to_others(
        "the live broadcast",
        "LIVE_WS_HOST",
        settings.live_ws_host,
        protected=settings.live_auth == "on",
        protect_by="set LIVE_AUTH=on",
    )
    trusted_proxies = trusted_networks("LIVE_TRUSTED_PROXIES", settings.live_trusted_proxies)
    loop = asyncio.get_running_loop()
    instance = instance_id(settings)
    database = Database.from_settings(settings)
    participants = Participants(database, settings.live_device_event_refresh_ms / 1000)
    sender = choose_sender(io_uring=settings.live_io_uring)
    topics = TopicRegistry(sender, settings.live_topics_warning)
    last_positions = LastPositions(
        settings.redis_telemetry_stream, settings.telemetry_retention_days, largest_bytes=settings.live_max_record_bytes
    )
    history = History(settings.live_history_s, settings.live_history_bytes)
    fanout = Fanout(settings, instance, participants, topics, last_positions=last_positions, history=history)
    catching_up = CatchingUp(settings, database, last_positions, history, fanout.recall)
    reader = StreamReader(settings, instance, last_positions, fanout.broadcast, catching_up.catch_up)

    def problem() -> str:
        without_map = "" if participants.loaded.is_set() else "the map of devices to events is not loaded yet"
        return reader.problem() or without_map

    hub = Hub(
        settings,
        instance,
        token_key(settings),
        participants,
        sender,
        topics,
        last_positions,
        history,
        problem,
        loop,
        Places(settings),
        own_hosts(settings),
        trusted_proxies,
    )
    ended = hub.ended = EndedSessions(database, changed=lambda: close_ended(hub))
    if settings.live_auth == "off":
        log.warning("LIVE_AUTH is off: anybody who can connect may watch every event")
    with contextlib.closing(sender), _listener(settings) as listener:
        async with _running(participants.run()), _running(reader.run()), _running(ended.run()):
            # A page that loads before the map does would be empty. But start without the map if the database is down.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MAP_WITHIN_S):
                    await participants.loaded.wait()
                    await reader.reading.wait()
            is_late = bool(problem())
            async with _serving(hub, listener), _running(_check_connections(hub)):
                port = listener.getsockname()[1]
                url = f"http://{in_url(settings.live_ws_host)}:{port}/live"
                log.info("daemon started", daemon=NAME, instance=instance, url=url, sender=sender.name)
                on_ready(port)
                async with _running(_send_snapshots_once_known(hub, reader)) if is_late else contextlib.nullcontext():
                    await stop.wait()
    log.info("daemon stopped", daemon=NAME)


@contextlib.asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run something at the same time. If it fails, the block fails too."""
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


async def _send_snapshots_once_known(hub: Hub, reader: StreamReader) -> None:
    """Clients that subscribed while the database or Redis was down got an empty snapshot."""
    await hub.participants.loaded.wait()
    await reader.reading.wait()
    send_snapshots(hub)


async def _check_connections(hub: Hub) -> None:
    while True:
        await asyncio.sleep(CHECK_EVERY_S)
        now, wall_clock = hub.loop.time(), time.time()
        for connection in list(hub.transports):
            connection.check(now, wall_clock)


@contextlib.contextmanager
def _listener(settings: Settings) -> Any:
    allow_open_files(most_connections(settings) + OTHER_FILES, setting="LIVE_WS_MAX_CONNECTIONS")
    names = "LIVE_WS_HOST, LIVE_WS_PORT"
    with listening(settings.live_ws_host, settings.live_ws_port, settings=names, backlog=BACKLOG) as listener:
        # Accepted connections inherit both.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_IN_KERNEL)
        yield listener
