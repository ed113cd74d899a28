"""The telemetry stream as a test sees it: records go in, and what the groups have left is counted."""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import redis

from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.live.redis_stream import RedisClient

Record = dict[str, str | bytes]


def record(device: str = "d1", *, at: datetime | None = None, **measured: Any) -> Record:
    """An entry's fields; `measured` adds to the payload or replaces what is in it."""
    ts = (at or datetime.now(UTC)).isoformat(timespec="milliseconds")
    payload = {"deviceId": device, "ts": ts, "latitude": 52.1, "longitude": 4.3, **measured}
    return {"ts": ts, "device_id": device, "codec": "8E", "payload": json.dumps(payload)}


def seconds_apart(count: int, device: str = "d1") -> list[Record]:
    """Records of one device, each a second after the one before; the last is of now."""
    now = datetime.now(UTC)
    return [record(device, at=now - timedelta(seconds=count - number)) for number in range(1, count + 1)]


@dataclass
class Stream:
    """One test's own stream, on the Redis and database that all share."""

    settings: Settings
    database: Database
    client: Any = field(init=False)

    def __post_init__(self) -> None:
        self.client = redis.Redis.from_url(self.settings.redis_url)

    @property
    def name(self) -> str:
        return self.settings.redis_telemetry_stream

    def add(self, *records: Record) -> list[str]:
        """Put records in; returns their ids."""
        with self.client.pipeline(transaction=False) as pipeline:
            for fields in records:
                pipeline.xadd(self.name, fields)
            return [entry_id.decode() for entry_id in pipeline.execute()]

    def pending(self, group: str = "processor") -> int:
        """Entries that were delivered and not acknowledged."""
        return int(self.client.xpending(self.name, group)["pending"])

    def groups(self) -> set[str]:
        if not self.client.exists(self.name):
            return set()
        return {group["name"].decode() for group in self.client.xinfo_groups(self.name)}

    def query(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        with self.database.connect(Role.READER) as connection:
            return connection.execute(statement.encode(), parameters).fetchall()

    def count(self, table: str) -> int:
        ((number,),) = self.query(f"SELECT count(*) FROM live.{table}")
        return int(number)

    def enter(self, event_id: str, devices: Sequence[str]) -> None:
        """Let devices take part in an event."""
        with self.database.connect(Role.WRITER) as connection:
            connection.execute(
                named_queries("live/queries/participants.sql")["enter_event"],
                {"event_id": event_id, "device_ids": list(devices)},
            )

    def withdraw(self, device: str) -> None:
        with self.database.connect(Role.WRITER) as connection:
            connection.execute("DELETE FROM live.entry_devices WHERE device_id = %s", (device,))

    def close(self) -> None:
        self.client.delete(self.name)
        self.client.close()


async def at_the_newest(client: RedisClient) -> bytes:
    """For a reader by itself: nothing is to be caught up with."""
    return b"$"


def own_stream(settings: Settings) -> Settings:
    return settings.model_copy(update={"redis_telemetry_stream": f"telemetry:{uuid.uuid4().hex[:8]}"})
