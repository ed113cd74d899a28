"""`clientmgr run live`: the broadcast and the durable writer in one process. Only this module knows both."""

import asyncio

from clientmgr.base.async_main import run_until_stopped
from clientmgr.base.logs import configure_logging
from clientmgr.base.metrics_server import serve_metrics
from clientmgr.base.settings import Settings
from streaming.live.broadcast.server import broadcast_until_stopped
from streaming.live.telemetry.writer import write_until_stopped


def run_live(settings: Settings) -> int:
    """Run both until SIGTERM or Ctrl-C."""
    configure_logging(settings, process="live")

    async def main(stop: asyncio.Event) -> None:
        async with serve_metrics(settings):
            await broadcast_and_write(settings, stop)

    return run_until_stopped(main)


async def broadcast_and_write(settings: Settings, stop: asyncio.Event) -> None:
    """Run both until `stop` is set. They end in this order: WebSocket server, broadcast reader, durable writer."""
    stop_writing = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write_until_stopped(settings, stop_writing))
        try:
            await broadcast_until_stopped(settings, stop)
        finally:
            stop_writing.set()
