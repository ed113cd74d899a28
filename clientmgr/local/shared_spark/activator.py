"""Listens where runs look for Spark, starts the server when the first connects, and passes on what they say.

So a run that finds the server stopped, killed or frozen gets a new one, and nobody pays for one that nobody uses.
"""

import asyncio
import contextlib
import time
from typing import Any

from clientmgr.base.errors import ClientManagerError
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.local.embedded.server import LOOPBACK
from clientmgr.local.shared_spark.server import SparkServer

log = get_logger(__name__)

LOOK_EVERY_S = 1.0
FROZEN_AFTER = 6
"""So many times in a row it did not answer within `ANSWER_WITHIN_S`."""
AT_ONCE_BYTES = 65536
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""With which gRPC begins. No page in this machine's browser can send it, so none can have the server started."""
PREFACE_WITHIN_S = 10.0


class Activator:
    """One server at a time, for any number of connections."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._server: SparkServer | None = None
        self._changing = asyncio.Lock()
        self._connections: set[asyncio.Task[Any]] = set()
        self._used_at = time.monotonic()

    async def run(self, port: int, stop: asyncio.Event) -> None:
        """Until `stop` is set. Nothing is left behind."""
        listener = await asyncio.start_server(self._serve, LOOPBACK, port)
        watch = asyncio.create_task(self._watch())
        try:
            await stop.wait()
        finally:
            listener.close()
            watch.cancel()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(watch, *self._connections, return_exceptions=True)
            await self._end("stopping")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        here = {task} if (task := asyncio.current_task()) else set()
        self._connections |= here
        try:
            begun = await asyncio.wait_for(reader.readexactly(len(PREFACE)), PREFACE_WITHIN_S)
            if begun != PREFACE:
                return
            server = await self._running_server()
            upstream_reader, upstream_writer = await asyncio.open_connection(LOOPBACK, server.port)
            upstream_writer.write(begun)
            both = (
                asyncio.create_task(_pass_on(reader, upstream_writer)),
                asyncio.create_task(_pass_on(upstream_reader, writer)),
            )
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for direction in both:
                    direction.cancel()
                upstream_writer.close()
        except asyncio.IncompleteReadError:
            pass  # gone without a word
        except (OSError, TimeoutError, ClientManagerError) as error:
            log.warning("a run could not be connected with Spark, it will try again", error=str(error))
        finally:
            writer.close()
            self._connections -= here
            self._used_at = time.monotonic()

    async def _running_server(self) -> SparkServer:
        async with self._changing:
            if self._server is not None and not self._server.is_running():
                await self._forget("ended by itself")
            if self._server is None:
                started = time.monotonic()
                server = await asyncio.to_thread(SparkServer, self._settings)
                try:
                    await server.wait_until_ready()
                except BaseException:
                    await asyncio.to_thread(server.stop)
                    raise
                self._server = server
                log.info("Spark server started", seconds=round(time.monotonic() - started, 1))
            return self._server

    async def _watch(self) -> None:
        silent = 0
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            server = self._server
            if server is None:
                silent = 0
            elif not server.is_running():
                await self._end("ended by itself")
            elif not self._connections and time.monotonic() - self._used_at > self._settings.spark_shared_idle_s:
                await self._end("nobody uses it")
            else:
                silent = 0 if await server.answers() else silent + 1
                if silent >= FROZEN_AFTER:
                    await self._end("it does not answer")

    async def _end(self, why: str) -> None:
        async with self._changing:
            await self._forget(why)

    async def _forget(self, why: str) -> None:
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.stop)
            log.info("Spark server stopped", why=why)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(AT_ONCE_BYTES):
            writer.write(data)
            await writer.drain()
