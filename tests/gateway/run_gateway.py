"""A gateway in a process of its own, as `clientmgr pubsub-gateway` runs it: settings from the environment."""

import asyncio
import signal

from clientmgr.base.database import Database
from clientmgr.base.logs import configure_logging
from clientmgr.base.settings import load_settings
from clientmgr.broker.gateway.server import serve


async def main() -> None:
    settings = load_settings()
    configure_logging(settings, process="pubsub-gateway")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await serve(settings, Database.from_settings(settings), stop, on_ready=lambda port: print(port, flush=True))


if __name__ == "__main__":
    asyncio.run(main())
