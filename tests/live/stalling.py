"""A client on a plain socket that reads only when it is told to, with as small a buffer as the system allows."""

import asyncio
import contextlib
import json
import socket

from websockets.frames import Frame, Opcode

from tests.live.serving import Served

_HANDSHAKE = (
    "GET /ws?token={token} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class StallingClient:
    """Subscribed, and then silent."""

    def __init__(self, served: Served, token: str, *, receive_buffer: int = 4096) -> None:
        self._served = served
        self._token = token
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.setblocking(False)
        self._buffer = b""

    async def subscribe(self, event: str) -> None:
        """Returns when the snapshot has come."""
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._socket, ("127.0.0.1", self._served.port))
        await loop.sock_sendall(self._socket, _HANDSHAKE.format(token=self._token).encode())
        await self.ask_again(event)
        while b"\r\n\r\n" not in self._buffer:
            await self._receive(4096)
        self._buffer = self._buffer.partition(b"\r\n\r\n")[2]
        assert (await self.frame())[1].startswith(b'{"type":"subscribed"')

    async def ask_again(self, event: str) -> None:
        """Subscribe, and do not wait for the answer. Who was hung up on already is not heard."""
        message = json.dumps({"type": "subscribe", "topic": f"event:{event}"}).encode()
        with contextlib.suppress(ConnectionError):
            await asyncio.get_running_loop().sock_sendall(
                self._socket, Frame(Opcode.TEXT, message).serialize(mask=True)
            )

    async def frame(self) -> tuple[int, bytes]:
        """The next frame's opcode and content."""
        await self._have(2)
        length, start = self._buffer[1], 2
        if length == 126:
            await self._have(4)
            length, start = int.from_bytes(self._buffer[2:4], "big"), 4
        elif length == 127:
            await self._have(10)
            length, start = int.from_bytes(self._buffer[2:10], "big"), 10
        await self._have(start + length)
        opcode, content = self._buffer[0] & 0x0F, self._buffer[start : start + length]
        self._buffer = self._buffer[start + length :]
        return opcode, content

    async def end(self) -> int | None:
        """Read on to the end; the close code, if a close frame came."""
        try:
            while True:
                opcode, content = await self.frame()
                if opcode == Opcode.CLOSE:
                    return int.from_bytes(content[:2], "big")
        except ConnectionError:
            return None

    def close(self) -> None:
        self._socket.close()

    async def _have(self, count: int) -> None:
        while len(self._buffer) < count:
            await self._receive(65_536)

    async def _receive(self, most: int) -> None:
        data = await asyncio.get_running_loop().sock_recv(self._socket, most)
        if not data:
            raise ConnectionError("the end")
        self._buffer += data
