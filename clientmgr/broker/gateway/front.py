"""The gateway's door: it counts connections, answers `GET /`, and passes all others on to gRPC.

gRPC's own listener bounds no number of connections, speaks nothing but HTTP/2, and takes no connection that somebody
else has accepted. So bytes are carried between two sockets. With TLS nobody can look inside: all of it is gRPC's.
"""

import asyncio
from typing import Any, Final, TypeAlias, cast

from prometheus_client import Counter

from clientmgr.base.connection_places import Places
from clientmgr.base.listening import allow_open_files
from clientmgr.base.settings import Settings

HTTP2: Final = b"PRI * HTTP/2.0\r\n"
READ_BYTES: Final = 256 * 1024
FIRST_BYTES_S: Final = 20.0
MAX_HEAD_BYTES: Final = 8 * 1024
LOOPBACK: Final = "127.0.0.1"
# The client's, and both ends of the one to gRPC.
FILES_A_CONNECTION: Final = 3
OTHER_FILES: Final = 200
TURNED_AWAY: Final = Counter(
    "clientmgr_gateway_connections_turned_away_total", "Connections that were refused or closed to make room.", ["why"]
)


class Front:
    """Listens on the gateway's address. What is behind it listens on `inner_port` of this machine."""

    def __init__(self, inner_port: int, settings: Settings, *, tls: bool) -> None:
        self._inner_port = inner_port
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[Any]] = set()
        most = settings.pubsub_gateway_max_connections
        self._places = Places(
            most, settings.pubsub_gateway_max_connections_per_address, (), lambda why: TURNED_AWAY.labels(why).inc()
        )
        # A proxy's address is everybody's.
        self._counts_addresses = not settings.pubsub_gateway_tls_by_proxy
        allow_open_files(most * FILES_A_CONNECTION + OTHER_FILES, setting="PUBSUB_GATEWAY_MAX_CONNECTIONS")

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
        guest = _Guest(writer)
        if not self._places.enter(guest, guest.address if self._counts_addresses else ""):
            guest.cut_off()
            return
        task = asyncio.create_task(self._serve(guest, reader, writer))
        self._open.add(task)
        try:
            await task
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # we stop, the other side is gone, or says nothing that anybody understands
        finally:
            self._open.discard(task)
            self._places.leave(guest)
            writer.close()

    async def _serve(self, guest: "_Guest", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(FIRST_BYTES_S):
            first = await reader.readexactly(len(HTTP2))
        if first != HTTP2 and not self._tls:
            await _answer_http(first, reader, writer)
            return
        self._places.works(guest)
        inner_reader, inner_writer = await asyncio.open_connection(LOOPBACK, self._inner_port, limit=READ_BYTES)
        try:
            await _joined((reader, writer), (inner_reader, inner_writer), first)
        finally:
            inner_writer.close()


class _Guest:
    """A connection, as far as its place matters. Until it has said something, it gives way to newer ones."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._transport = writer.transport
        peer = writer.get_extra_info("peername")
        self.address: str = peer[0] if peer else ""

    def cut_off(self) -> None:
        self._transport.abort()


class _Carrier(asyncio.Protocol):
    """Writes to the other side what comes from this one. Whoever reads slowly is not read for, either: no more than a
    buffer's worth waits here."""

    def __init__(self, other: asyncio.Transport, ended: asyncio.Event) -> None:
        self._other = other
        self._ended = ended

    def data_received(self, data: bytes) -> None:
        if not self._other.is_closing():
            self._other.write(data)

    def pause_writing(self) -> None:
        """This side is full."""
        if not self._other.is_closing():
            self._other.pause_reading()

    def resume_writing(self) -> None:
        if not self._other.is_closing():
            self._other.resume_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        self._ended.set()


_Side: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _joined(client: _Side, server: _Side, first: bytes) -> None:
    """Carry bytes until either side ends: then so does the other. gRPC must notice at once that a client has gone.

    Without readers and tasks in between, which cost more than the carrying. `first`: what was read of the client's.
    """
    ended = asyncio.Event()
    for (reader, source), (_, target) in ((client, server), (server, client)):
        source.transport.set_protocol(_Carrier(cast("asyncio.Transport", target.transport), ended))
        # What its reader holds already: at the end of a stream it gives that, and waits for nothing.
        reader.feed_eof()
        target.write(first + await reader.read())
        first = b""
    await ended.wait()


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
