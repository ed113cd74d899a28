"""A client that sends any bytes after the handshake, right or wrong, and tells what came back."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass

TEXT, BINARY, CONTINUATION, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10
WITHIN_S = 20.0
_MASK = b"\x12\x34\x56\x78"


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, masked: bool = True) -> bytes:
    """A frame as a client sends it, allowed or not."""
    length, mask_bit = len(payload), 0x80 if masked else 0
    if length < 126:
        size = bytes([mask_bit | length])
    elif length < 65_536:
        size = bytes([mask_bit | 126]) + length.to_bytes(2, "big")
    else:
        size = bytes([mask_bit | 127]) + length.to_bytes(8, "big")
    body = bytes(byte ^ _MASK[place % 4] for place, byte in enumerate(payload)) if masked else payload
    return bytes([(0x80 if fin else 0) | rsv << 4 | opcode]) + size + (_MASK if masked else b"") + body


def close(code: int, reason: bytes = b"") -> bytes:
    return frame(CLOSE, code.to_bytes(2, "big") + reason)


def fragments(opcode: int, *parts: bytes) -> list[bytes]:
    last = len(parts) - 1
    return [frame(CONTINUATION if n else opcode, part, fin=n == last) for n, part in enumerate(parts)]


def request(path: str = "/ws", host: str = "localhost", *headers: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", *([f"Host: {host}"] if host else []), *headers]
    lines += ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
    return "\r\n".join([*lines, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", ""]).encode()


@dataclass
class RawClient:
    """An open TCP connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def connect(cls, port: int) -> "RawClient":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def open(self, sent: bytes) -> bytes:
        """Send a request; the head of the answer."""
        self.writer.write(sent)
        async with asyncio.timeout(WITHIN_S):
            return await self.reader.readuntil(b"\r\n\r\n")

    async def next(self) -> object:
        """The next frame: ("pong", content), ("close", code) or (type or error code of the answer). None: the end."""
        try:
            async with asyncio.timeout(WITHIN_S):
                first, length = await self.reader.readexactly(2)
                if length == 126:
                    length = int.from_bytes(await self.reader.readexactly(2), "big")
                elif length == 127:
                    length = int.from_bytes(await self.reader.readexactly(8), "big")
                content = await self.reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        match first:
            case 0x8A:
                return "pong", content
            case 0x88:
                return "close", int.from_bytes(content[:2], "big") if content else None
            case 0x81:
                answer = json.loads(content)
                return answer.get("code", answer["type"])
        return "unexpected", first

    async def everything(self) -> list[object]:
        """What comes until the end."""
        heard: list[object] = []
        while (one := await self.next()) is not None:
            heard.append(one)
        return heard

    def end(self) -> None:
        self.writer.transport.abort()


async def converse(port: int, sent: Sequence[bytes], *, in_pieces_of: int = 0) -> list[object]:
    """Everything that comes back for these bytes, up to the end of the connection."""
    client = await RawClient.connect(port)
    try:
        assert (await client.open(request())).startswith(b"HTTP/1.1 101")
        data = b"".join(sent)
        for start in range(0, len(data), in_pieces_of or len(data) or 1):
            client.writer.write(data[start : start + (in_pieces_of or len(data))])
            await asyncio.sleep(0)
        return await client.everything()
    finally:
        client.end()
