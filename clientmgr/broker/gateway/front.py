"""One port for gRPC and for `GET /`: who asks plain HTTP is answered here, all others are passed on to gRPC.

gRPC's own listener speaks nothing but HTTP/2, and takes no connection that somebody else has accepted. So bytes are
carried between two sockets. With TLS there is no front: nobody could look inside.
"""

import asyncio
from typing import Any, Final

HTTP2: Final = b"PRI * HTTP/2.0\r\n"
READ_BYTES: Final = 256 * 1024
FIRST_BYTES_S: Final = 20.0
MAX_HEAD_BYTES: Final = 8 * 1024
LOOPBACK: Final = "127.0.0.1"


class Front:
    """Listens on the gateway's address. What is behind it listens on `inner_port` of this machine."""

    def __init__(self, inner_port: int) -> None:
        self._inner_port = inner_port
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[Any]] = set()

    async def listen(self, host: str, port: int) -> int:
        """The port that was taken. OSError: it can't be had."""
        self._server = await asyncio.start_server(self._accept, host.strip("[]"), port, limit=READ_BYTES)
        chosen: int = self._server.sockets[0].getsockname()[1]
        return chosen

    def stop_listening(self) -> None:
        """New connections are refused; those that are open stay."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._open.add(task)
        try:
            await task
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # we stop, the other side is gone, or says nothing that anybody understands
        finally:
            self._open.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(FIRST_BYTES_S):
            first = await reader.readexactly(len(HTTP2))
        if first != HTTP2:
            await _answer_http(first, reader, writer)
            return
        inner_reader, inner_writer = await asyncio.open_connection(LOOPBACK, self._inner_port, limit=READ_BYTES)
        inner_writer.write(first)
        # When either side ends, so does the other: gRPC must notice at once that a client has gone.
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_carry(reader, inner_writer))
                both.create_task(_carry(inner_reader, writer))
        except* (OSError, _Ended):
            pass
        finally:
            inner_writer.close()


class _Ended(Exception):
    """A side has no more to say."""


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while chunk := await source.read(READ_BYTES):
        target.write(chunk)
        # Whoever reads slowly is not read for, either: no more than a buffer's worth waits here.
        await target.drain()
    raise _Ended


async def _answer_http(first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """To `GET /` and `HEAD /` 200, to all else 404: REST is not spoken here."""
    async with asyncio.timeout(FIRST_BYTES_S):
        head = first
        while b"\r\n\r\n" not in head:
            if len(head) > MAX_HEAD_BYTES:
                return
            more = await reader.read(MAX_HEAD_BYTES)
            if not more:
                return
            head += more
    method, _, rest = head.partition(b" ")
    path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
    healthy = method in (b"GET", b"HEAD") and path == b"/"
    status, text = ("200 OK", "Ok\n") if healthy else ("404 Not Found", "This gateway speaks gRPC, and no REST.\n")
    answer = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
        f"{'' if method == b'HEAD' else text}"
    )
    writer.write(answer.encode())
    await writer.drain()
