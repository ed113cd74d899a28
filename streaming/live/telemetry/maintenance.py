"""What the durable group needs now and then: the stream trimmed behind it, dead consumers forgotten, days of tables."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

from psycopg import Error
from psycopg_pool import PoolTimeout

from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.live.redis_stream import REDIS_ERRORS, RedisClient, open_redis, wait_for_stop
from streaming.live.telemetry.losses import StreamLosses
from streaming.live.telemetry.metrics import STREAM_LAG, STREAM_LENGTH, STREAM_LOST, STREAM_PENDING
from streaming.live.telemetry.store import PositionStore

log = get_logger(__name__)

LOOK_EVERY_S = 5.0
TIDY_EVERY_S = 3600.0
FORGET_CONSUMERS_AFTER_MS = 3_600_000

# In one step: between a look and the removal a consumer could have taken an entry, which would go with it.
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


class StreamUpkeep:
    """Runs beside each writer; several at once do no harm."""

    def __init__(self, settings: Settings, store: PositionStore, group: str) -> None:
        self._settings = settings
        self._store = store
        self._stream = settings.redis_telemetry_stream
        self._group = group
        self._losses = StreamLosses()
        self._measuring = asyncio.Lock()  # one look after the other: losses are told by comparing them
        self._tidy_at = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        async with open_redis(self._settings) as client:
            while not stop.is_set():
                # Each by itself: a database that is away is when the stream most needs to be watched.
                try:
                    await self.look_after_stream(client)
                except REDIS_ERRORS as error:
                    log.warning("upkeep of the stream failed, next time perhaps", error=str(error).strip())
                try:
                    await self._tidy_when_due()
                except (Error, PoolTimeout, OSError) as error:
                    log.warning("upkeep of the positions failed, next time perhaps", error=str(error).strip())
                await wait_for_stop(stop, LOOK_EVERY_S)

    async def look_after_stream(self, client: RedisClient) -> None:
        """One look: tell how far behind the group is, trim behind it, forget consumers that have long gone."""
        last_delivered = await self.measure(client)
        if last_delivered is None:
            return
        # After the group: what it has delivered since is newer than what is trimmed below.
        await self._trim(client, last_delivered)
        await client.eval(FORGET_CONSUMERS, 1, self._stream, self._group, str(FORGET_CONSUMERS_AFTER_MS))

    async def measure(self, client: RedisClient) -> str | None:
        """Tell how far behind the group is and what it has lost. The last entry delivered to it; None: no group."""
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
            self._tell(stream, group)
            return _text(group["last-delivered-id"])

    def _tell(self, stream: dict[str, Any], group: dict[str, Any]) -> None:
        added, length, lag = stream["entries-added"], stream["length"], group["lag"]
        STREAM_LENGTH.set(length)
        STREAM_PENDING.set(group["pending"])
        STREAM_LAG.set(float("nan") if lag is None else lag)
        lost = self._losses.newly_lost(added=added, length=length, read=group["entries-read"])
        if lost:
            STREAM_LOST.inc(lost)
            log.error("entries were trimmed from the stream before they were read", lost=lost)

    async def _tidy_when_due(self) -> None:
        if time.monotonic() >= self._tidy_at:
            await self._store.tidy(datetime.now(UTC))
            self._tidy_at = time.monotonic() + TIDY_EVERY_S

    async def _trim(self, client: RedisClient, last_delivered: str) -> None:
        """Nothing goes that is not durable: neither unread nor pending entries, nor young ones that others may want."""
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
