"""The limit: plain sockets, bytes that need no thought, one `send` per connection and read. Arguments: REDIS_URL STREAM
EVENTS. Prints the port.

Nothing is parsed but what the route needs, and there are no limits, no checks and no memory. Who does not keep up
holds up all others.
"""

import base64
import hashlib
import os
import selectors
import socket
import sys
import threading
from collections import defaultdict
from datetime import datetime
from typing import Any

import hiredis
import redis
from websockets.frames import Frame, Opcode

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def main(url: str, stream: str, events: int) -> None:
    topics: dict[str, list[socket.socket]] = defaultdict(list)
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    threading.Thread(target=accept, args=(listener, topics), daemon=True).start()
    client = redis.Redis.from_url(url, protocol=2)
    group = f"live-broadcast-raw-{os.getpid()}"
    client.xgroup_create(stream, group, id="$", mkstream=True)
    connection: Any = client.connection_pool.get_connection()
    request = b"".join(
        connection.pack_command(
            *("XREADGROUP", "GROUP", group, "c", "COUNT", 100, "BLOCK", 1000, "NOACK", "STREAMS", stream, ">")
        )
    )
    print(listener.getsockname()[1], flush=True)
    while True:
        batch: dict[str, list[bytes]] = defaultdict(list)
        for _, entries in ask(connection._sock, request) or []:
            for _, flat in entries:
                fields = dict(zip(flat[::2], flat[1::2], strict=True))
                device = fields[b"device_id"].decode()
                topic = f"event:E{int(device[1:]) % events}"
                batch[topic].append(frame(topic, device, fields))
        for topic, frames in batch.items():
            joined = b"".join(frames)
            for viewer in topics[topic]:
                send(viewer, joined)


def ask(server: socket.socket, request: bytes) -> Any:
    """Nothing between us and the socket but hiredis: redis-py takes four times as long."""
    server.settimeout(None)
    server.sendall(request)
    reader = hiredis.Reader()
    while (answer := reader.gets()) is False:
        reader.feed(server.recv(262_144))
    return answer


def send(viewer: socket.socket, data: bytes) -> None:
    try:
        sent = viewer.send(data)
    except BlockingIOError:
        sent = 0
    if sent < len(data):
        viewer.setblocking(True)
        viewer.sendall(data[sent:])
        viewer.setblocking(False)


def frame(topic: str, device: str, fields: dict[bytes, bytes]) -> bytes:
    ts = round(datetime.fromisoformat(fields[b"ts"].decode()).timestamp() * 1000)
    body = fields[b"payload"].partition(b'"latitude":')[2]
    lat, _, rest = body.partition(b',"longitude":')
    lon, _, rest = rest.partition(b",")
    text = b'{"type":"position","topic":"%b","deviceId":"%b","lat":%b,"lon":%b,"ts":%d,%b' % (
        topic.encode(),
        device.encode(),
        lat,
        lon,
        ts,
        rest,
    )
    return bytes((0x81, 0x7E)) + len(text).to_bytes(2, "big") + text


def accept(listener: socket.socket, topics: dict[str, list[socket.socket]]) -> None:
    """Handshakes and subscriptions, in a thread that sleeps afterwards."""
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                viewer, _ = listener.accept()
                viewer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(viewer, selectors.EVENT_READ)
                continue
            viewer = key.fileobj  # type: ignore[assignment]
            data = viewer.recv(4096)
            if data.startswith(b"GET"):
                key_line = next(line for line in data.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key"))
                digest = hashlib.sha1(key_line.partition(b":")[2].strip() + GUID).digest()  # noqa: S324  # RFC 6455
                viewer.send(
                    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    b"Sec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n\r\n"
                )
            elif data:
                mask, masked = data[2:6], data[6:]
                text = bytes(byte ^ mask[i % 4] for i, byte in enumerate(masked)).decode()
                topic = text.rpartition('"topic":"')[2].partition('"')[0]
                answer = f'{{"type":"subscribed","topic":"{topic}","snapshot":[]}}'.encode()
                viewer.send(Frame(Opcode.TEXT, answer).serialize(mask=False))
                viewer.setblocking(False)
                topics[topic].append(viewer)
            else:
                selector.unregister(viewer)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
