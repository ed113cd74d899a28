"""`clientmgr run live`: the broadcast and the durable writer in one process. Only this module knows both."""

import asyncio

from clientmgr.base.daemon_process import DaemonWork
from clientmgr.base.settings import Settings
from streaming.live.broadcast.server import broadcast_until_stopped
from streaming.live.telemetry.writer import write_until_stopped


def live(settings: Settings) -> DaemonWork:
    """Both, as a process of their own."""
    return DaemonWork("live", lambda stop: broadcast_and_write(settings, stop))


async def broadcast_and_write(settings: Settings, stop: asyncio.Event) -> None:
    """Run both until `stop` is set. They end in this order: WebSocket server, broadcast reader, durable writer."""
    stop_writing = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write_until_stopped(settings, stop_writing))
        try:
            await broadcast_until_stopped(settings, stop)
        finally:
            stop_writing.set()
