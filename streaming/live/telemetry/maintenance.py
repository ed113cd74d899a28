"""Periodic work: measure the lag, trim the stream, forget dead consumers, create and drop partitions."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

from psycopg import Error
from psycopg_pool import PoolTimeout

from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.base.waiting import wait_for_stop
from clientmgr.live.redis_stream import REDIS_ERRORS, RedisClient, open_redis
from streaming.live.telemetry.losses import StreamLosses
from streaming.live.telemetry.store import PositionStore
from streaming.live.telemetry.telemetry_metrics import STREAM_LAG, STREAM_LENGTH, STREAM_LOST, STREAM_PENDING

log = get_logger(__name__)

MAINTAIN_EVERY_S = 5.0
PARTITIONS_EVERY_S = 3600.0
FORGET_CONSUMERS_AFTER_MS = 3_600_000

# A script, so that a consumer can't take an entry between the check and the removal: the entry would be lost with it.
FORGET_CONSUMERS = """
local forgotten = 0
for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
    local consumer = {}
    for i = 1, #row, 2 do consumer[row[i]] = row[i + 1] end
    if consumer['pending'] == 0 and consumer['idle'] > tonumber(ARGV[2]) then
        redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer['name'])
        forgotten = forgotten + 1
    end
end
return forgotten
"""


class StreamMaintenance:
    """Runs beside each writer. Several at once do no harm."""

    def __init__(self, settings: Settings, store: PositionStore, group: str) -> None:
        self._settings = settings
        self._store = store
        self._stream = settings.redis_telemetry_stream
        self._group = group
        self._losses = StreamLosses()
        self._measuring = asyncio.Lock()  # one at a time: a loss is found by comparing two measurements
        self._partitions_at = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        async with open_redis(self._settings) as client:
            while not stop.is_set():
                # Independent of each other: the stream needs watching most while the database is down.
                try:
                    await self.maintain_stream(client)
                except REDIS_ERRORS as error:
                    log.warning("maintenance of the stream failed, will try again", error=str(error).strip())
                try:
                    await self._maintain_partitions_when_due()
                except (Error, PoolTimeout, OSError) as error:
                    log.warning("maintenance of the positions failed, will try again", error=str(error).strip())
                await wait_for_stop(stop, MAINTAIN_EVERY_S)

    async def maintain_stream(self, client: RedisClient) -> None:
        """One round: measure how far behind the group is, trim the stream, forget consumers that are long gone."""
        last_delivered = await self.measure(client)
        if last_delivered is None:
            return
        # Measured before trimming: what the group gets meanwhile is newer than anything that is trimmed.
        await self._trim(client, last_delivered)
        await client.eval(FORGET_CONSUMERS, 1, self._stream, self._group, str(FORGET_CONSUMERS_AFTER_MS))

    async def measure(self, client: RedisClient) -> str | None:
        """Measure how far behind the group is and what it has lost. Returns its last entry; None: no group."""
        async with self._measuring:
            if not await client.exists(self._stream):
                return None
            async with client.pipeline(transaction=True) as pipeline:
                pipeline.xinfo_stream(self._stream)
                pipeline.xinfo_groups(self._stream)
                stream, groups = await pipeline.execute()
            group = next((found for found in groups if _text(found["name"]) == self._group), None)
            if group is None:
                return None
            self._record(stream, group)
            return _text(group["last-delivered-id"])

    def _record(self, stream: dict[str, Any], group: dict[str, Any]) -> None:
        added, length, lag = stream["entries-added"], stream["length"], group["lag"]
        STREAM_LENGTH.set(length)
        STREAM_PENDING.set(group["pending"])
        STREAM_LAG.set(float("nan") if lag is None else lag)
        lost = self._losses.newly_lost(added=added, length=length, read=group["entries-read"])
        if lost:
            STREAM_LOST.inc(lost)
            log.error("entries were trimmed from the stream before they were read", lost=lost)

    async def _maintain_partitions_when_due(self) -> None:
        if time.monotonic() >= self._partitions_at:
            await self._store.maintain_partitions(datetime.now(UTC))
            self._partitions_at = time.monotonic() + PARTITIONS_EVERY_S

    async def _trim(self, client: RedisClient, last_delivered: str) -> None:
        """Keep unread and pending entries, which are not durable yet, and young ones, which others may still want."""
        pending: dict[str, Any] = await client.xpending(self._stream, self._group)
        oldest_needed = last_delivered if pending["min"] is None else _text(pending["min"])
        seconds, microseconds = await client.time()
        young_from_ms = seconds * 1000 + microseconds // 1000 - int(self._settings.telemetry_stream_keep_s * 1000)
        keep_from = min(oldest_needed, f"{max(young_from_ms, 0)}-0", key=_order)
        await client.xtrim(self._stream, minid=keep_from, approximate=True)


def _order(entry_id: str) -> tuple[int, int]:
    milliseconds, _, number = entry_id.partition("-")
    return int(milliseconds), int(number or 0)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
