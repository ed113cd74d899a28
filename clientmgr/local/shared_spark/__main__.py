"""The shared Spark server as a program of `up`: it listens on the port of SPARK_CONNECT_URL."""

import asyncio
import sys
from urllib.parse import urlsplit

from clientmgr.base.async_main import run_until_stopped
from clientmgr.base.logs import configure_logging
from clientmgr.base.settings import load_settings
from clientmgr.local.shared_spark.activator import Activator


def main() -> int:
    settings = load_settings()
    configure_logging(settings, process="spark")
    port = urlsplit(settings.spark_connect_url).port
    if port is None:
        print("SPARK_CONNECT_URL: expected a port to listen on", file=sys.stderr)
        return 2

    async def run(stop: asyncio.Event) -> None:
        await Activator(settings).run(port, stop)

    return run_until_stopped(run)


if __name__ == "__main__":
    sys.exit(main())
