"""Answers DynamoDB's Query from memory, as quickly as Python can: it is our side that is measured, not a server of AWS.

A contact has the devices that the benchmark's database has for it in PostgreSQL.
"""

import asyncio
import json
import sys
from typing import Any

import msgspec

from bench.device_mapper.workload import NOBODY

KINDS = (("ios", "apns"), ("android", "fcm_token"), ("android", "fcm_fid"), ("android-huawei", "hms"))


def items(contact: int, prefix: str, devices: int) -> list[dict[str, Any]]:
    found = []
    for device in range(1, devices + 1):
        platform, kind = KINDS[(contact + device) % 4]
        values = {
            "deviceKey": f"{prefix}{contact}-{device}",
            "platform": platform,
            "kind": kind,
            "pushToken": "t" * 128,
            "language": "fr-CA",
            "applicationVersion": "4.12",
        }
        found.append({**{name: {"S": value} for name, value in values.items()}, "pushEnabled": {"BOOL": True}})
    return found


def answer(body: bytes, devices: int) -> bytes:
    values = msgspec.json.decode(body)["ExpressionAttributeValues"]
    contact = int(values[":contact"]["S"].partition("#")[2])
    found = items(contact, values[":application"]["S"], 0 if contact == NOBODY else devices)
    return msgspec.json.encode({"Items": found, "Count": len(found), "ScannedCount": len(found)})


async def serve(devices: int) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.partition(b":")[2])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-le")
                )
                content = answer(await reader.readexactly(length), devices)
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: %d\r\n\r\n%b"
                    % (len(content), content)
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(json.dumps({"url": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.argv[1])["devices"]))
