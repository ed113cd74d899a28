"""Reads the stream for one instance, in its own consumer group, from the newest record on."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import redis

from clientmgr.base.backoff import backoff_s
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.base.waiting import being_cancelled
from clientmgr.live.redis_stream import (
    LONGEST_PAUSE_S,
    REDIS_ERRORS,
    Entry,
    RedisClient,
    open_redis,
)
from streaming.live.broadcast.last_positions import LastPositions
from streaming.live.broadcast.namesakes import Namesakes
from streaming.live.broadcast.stream_tail import follow

log = get_logger(__name__)

STALE_AFTER_S = 10.0
"""After a longer outage, the records that piled up are no longer live and are skipped."""
SILENT_AFTER_S = 10.0
"""Silence that makes the instance unhealthy, beyond the longest wait of one read."""
REAP_AFTER_MS = 60_000
"""A group whose consumers have asked for nothing in this time belongs to a dead instance. A live instance asks at least
every LIVE_BROADCAST_BATCH_BLOCK_MS, which is at most half of this.
"""
SAVE_EVERY_S = 1.0
TWO_OF_A_NAME = (
    "another instance runs under the name {} too, so each of the two gets only part of the positions: give each "
    "an INSTANCE_ID of its own, or none"
)
REAP_EVERY_S = 30.0
FORGET_EVERY_S = 3600.0
LOOK_FOR_NAMESAKES_EVERY_S = 2.0
COMPLAIN_EVERY_S = 60.0

# A script, so that an instance can't come back between the check and the removal. A group without consumers is left
# alone: somebody may be about to join it. Ours are created together with their consumer.
REAP = """
local reaped = {}
if redis.call('EXISTS', KEYS[1]) == 0 then return reaped end
for _, row in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local name = row[2]
    if string.sub(name, 1, #ARGV[1]) == ARGV[1] and name ~= ARGV[3] then
        local consumers = redis.call('XINFO', 'CONSUMERS', KEYS[1], name)
        local dead = #consumers > 0
        for _, consumer in ipairs(consumers) do
            for i = 1, #consumer, 2 do
                if consumer[i] == 'idle' and consumer[i + 1] < tonumber(ARGV[2]) then dead = false end
            end
        end
        if dead then
            redis.call('XGROUP', 'DESTROY', KEYS[1], name)
            table.insert(reaped, name)
        end
    end
end
return reaped
"""


class StreamReader:
    """Hands batches to `broadcast`, and survives every outage of Redis."""

    def __init__(
        self,
        settings: Settings,
        instance: str,
        last_positions: LastPositions,
        broadcast: Callable[[Sequence[Entry]], None],
        catch_up: Callable[[RedisClient], Awaitable[bytes]],
        *,
        reap_after_ms: int = REAP_AFTER_MS,
    ) -> None:
        self._settings = settings
        self._stream = settings.redis_telemetry_stream
        self._prefix = f"{settings.live_broadcast_group_prefix}-"
        self._consumer = instance
        self._last_positions = last_positions
        self._broadcast = broadcast
        self._catch_up = catch_up
        self._namesakes = Namesakes(self._stream, instance)
        self._reap_after_ms = reap_after_ms
        self._read_at = float("-inf")
        self._failures = 0
        self.group = self._prefix + instance
        self.reading = asyncio.Event()

    def problem(self) -> str:
        """Why the instance is unhealthy; empty: it is healthy."""
        silence_s = time.monotonic() - self._read_at
        if silence_s > self._settings.live_broadcast_batch_block_ms / 1000 + SILENT_AFTER_S:
            return f"nothing could be read from Redis for {silence_s:.0f} s" if self.reading.is_set() else "starting"
        return TWO_OF_A_NAME.format(self._consumer) if self._namesakes.found else ""

    async def run(self) -> None:
        """Read until cancelled, then remove our group from Redis."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._maintain_redis())
                tasks.create_task(self._read_for_ever())
        finally:
            await self._leave()

    async def _read_for_ever(self) -> None:
        settings = self._settings
        request = (
            *("XREADGROUP", "GROUP", self.group, self._consumer, "COUNT", settings.live_broadcast_batch_size),
            *("BLOCK", settings.live_broadcast_batch_block_ms, "NOACK", "STREAMS", self._stream, ">"),
        )
        async with open_redis(settings, blocking=True) as client:
            while not being_cancelled():
                try:
                    await self._begin(client)
                    await follow(client, request, self._take, at_once=settings.live_broadcast_batch_size)
                except REDIS_ERRORS as error:
                    self._failures += 1
                    log.warning("reading the stream failed, trying again", error=str(error), failures=self._failures)
                    # After a fail-over the old connection may lead to a server that is no longer the primary.
                    await client.connection_pool.disconnect()
                # No pause after the first failure: a group that somebody destroyed is not an outage.
                await asyncio.sleep(backoff_s(self._failures, longest_s=LONGEST_PAUSE_S) if self._failures > 1 else 0)

    def _take(self, entries: Sequence[Entry]) -> float:
        """Hand on what was read. Returns for how many seconds to collect more before the next batch."""
        self._failures = 0
        self._read_at = time.monotonic()
        if entries:
            self._broadcast(entries)
        # After a full batch there is more to read: a pause would only put us further behind.
        caught_up = len(entries) < self._settings.live_broadcast_batch_size
        return self._settings.live_broadcast_tick_ms / 1000 if caught_up else 0.0

    async def _begin(self, client: RedisClient) -> None:
        """Create our group, or go on where it is. After a restart or a long outage, skip what is not live any more."""
        is_late = time.monotonic() - self._read_at > STALE_AFTER_S
        newest = await self._catch_up(client) if is_late else self._last_positions.upto or b"$"
        async with client.pipeline(transaction=True) as pipeline:
            pipeline.xgroup_create(self._stream, self.group, id=newest, mkstream=True)
            pipeline.xgroup_createconsumer(self._stream, self.group, self._consumer)
            created, joined = await pipeline.execute(raise_on_error=False)
        if isinstance(created, redis.ResponseError) and str(created).startswith("BUSYGROUP"):
            if is_late:
                await client.xgroup_setid(self._stream, self.group, newest)
        elif isinstance(created, Exception):
            raise created
        if isinstance(joined, Exception):
            raise joined
        if not self.reading.is_set():
            self._read_at = time.monotonic()
            log.info("reading the stream", stream=self._stream, group=self.group)
            self.reading.set()

    async def _maintain_redis(self) -> None:
        reap_at = look_at = complain_at = 0.0
        forget_at = time.monotonic() + FORGET_EVERY_S  # loading has just done it
        async with open_redis(self._settings) as client:
            while not being_cancelled():
                try:
                    await self._last_positions.save(client)
                    if time.monotonic() >= look_at:
                        await self._namesakes.look(client)
                        look_at = time.monotonic() + LOOK_FOR_NAMESAKES_EVERY_S
                    if self._namesakes.found and time.monotonic() >= complain_at:
                        log.error(TWO_OF_A_NAME.format(self._consumer))
                        complain_at = time.monotonic() + COMPLAIN_EVERY_S
                    if time.monotonic() >= reap_at:
                        await self.reap(client)
                        reap_at = time.monotonic() + REAP_EVERY_S
                    if time.monotonic() >= forget_at:
                        await self._last_positions.forget_old(client)
                        forget_at = time.monotonic() + FORGET_EVERY_S
                except REDIS_ERRORS as error:
                    log.warning("last positions are not saved for now", error=str(error))
                await asyncio.sleep(SAVE_EVERY_S)

    async def reap(self, client: RedisClient) -> None:
        """Destroy the groups of instances that are gone."""
        reaped: list[bytes] = await client.eval(
            REAP, 1, self._stream, self._prefix, str(self._reap_after_ms), self.group
        )
        if reaped:
            log.info("groups of dead instances removed", groups=[name.decode() for name in reaped])

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(2), open_redis(self._settings) as client:
                await self._last_positions.save(client)
                await self._namesakes.leave(client)
                if not self._namesakes.found:
                    await client.xgroup_destroy(self._stream, self.group)
        except (*REDIS_ERRORS, TimeoutError) as error:
            log.info("our group is left behind until another instance removes it", error=str(error))
