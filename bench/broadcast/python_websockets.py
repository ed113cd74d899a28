"""The Python `websockets` server with its `broadcast`, record by record. Arguments: REDIS_URL STREAM EVENTS.

Prints the port.
"""

import json
import logging
import os
import sys
from collections import defaultdict
from datetime import datetime
from typing import Any

import redis.asyncio
import uvloop
from websockets.asyncio.server import ServerConnection, broadcast, serve

compact = json.JSONEncoder(separators=(",", ":")).encode


async def main(url: str, stream: str, events: int) -> None:
    topics: dict[str, set[ServerConnection]] = defaultdict(set)

    async def handler(connection: ServerConnection) -> None:
        mine = []
        try:
            async for text in connection:
                topic = json.loads(text)["topic"]
                topics[topic].add(connection)
                mine.append(topic)
                await connection.send(compact({"type": "subscribed", "topic": topic, "snapshot": []}))
        finally:
            for topic in mine:
                topics[topic].discard(connection)

    client = redis.asyncio.Redis.from_url(url)
    group = f"live-broadcast-websockets-{os.getpid()}"
    await client.xgroup_create(stream, group, id="$", mkstream=True)
    # It would tell of each viewer that hangs up, as all of them do at the end.
    logging.getLogger("websockets.server").setLevel(logging.CRITICAL)
    async with serve(handler, "127.0.0.1", 0, compression=None, ping_interval=None, backlog=4096) as server:
        print(next(iter(server.sockets)).getsockname()[1], flush=True)
        while True:
            answer: Any = await client.xreadgroup(group, "c", {stream: ">"}, count=100, block=1000, noack=True)
            for _, entries in answer or []:
                for _, fields in entries:
                    payload = json.loads(fields[b"payload"])
                    device = fields[b"device_id"].decode()
                    topic = f"event:E{int(device[1:]) % events}"
                    frame = {
                        "type": "position",
                        "topic": topic,
                        "deviceId": device,
                        "lat": payload["latitude"],
                        "lon": payload["longitude"],
                        "ts": round(datetime.fromisoformat(fields[b"ts"].decode()).timestamp() * 1000),
                        "speed": payload["speed"],
                        "course": payload["course"],
                    }
                    broadcast(topics[topic], compact(frame))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
