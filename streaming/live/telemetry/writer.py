"""The durable writer: every position of the stream into PostgreSQL, acknowledged only after the commit.

Writers share the consumer group `processor`. What one of them leaves behind unacknowledged, another takes over.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import redis
from psycopg import Error
from psycopg_pool import PoolTimeout

from clientmgr.base.async_main import run_until_stopped
from clientmgr.base.backoff import backoff_s
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import ErrorKind, blames_the_database, classify
from clientmgr.base.logs import configure_logging, get_logger
from clientmgr.base.metrics_server import serve_metrics
from clientmgr.base.settings import Settings
from clientmgr.live.redis_stream import (
    DURABLE_GROUP,
    LONGEST_PAUSE_S,
    REDIS_ERRORS,
    Entry,
    RedisClient,
    ensure_group,
    entries_of,
    instance_id,
    open_redis,
    wait_for_stop,
)
from streaming.live.telemetry.maintenance import StreamUpkeep
from streaming.live.telemetry.metrics import CLAIMED, DUPLICATES, READ, REJECTED, STREAM_LOST, WRITTEN
from streaming.live.telemetry.store import PositionStore, Written

log = get_logger(__name__)

NAME = "telemetry-writer"
BLOCK_MS = 1000
CONNECTION_WITHIN_S = 5.0
"""Of the database. Longer, and a writer that is told to stop in an outage would be killed for not stopping."""
FROM_THE_START = "0"
NEW = ">"


def run_telemetry_writer(settings: Settings, *, burst: bool = False) -> int:
    """Run the writer as a process of its own. SIGTERM and Ctrl-C let it finish the batch in hand."""
    configure_logging(settings, process=NAME)

    async def main(stop: asyncio.Event) -> None:
        async with serve_metrics(settings):
            await write_until_stopped(settings, stop, burst=burst)

    return run_until_stopped(main)


async def write_until_stopped(settings: Settings, stop: asyncio.Event, *, burst: bool = False) -> Written:
    """Write positions until `stop` is set or, in burst mode, until the stream has no more."""
    database = Database.from_settings(settings)
    client = open_redis(settings, blocking=True)
    pool = database.pool_async(Role.WRITER, size=2, timeout_s=CONNECTION_WITHIN_S)
    async with client, pool:
        name = instance_id(settings)
        store = PositionStore(pool, settings.redis_telemetry_stream, settings.telemetry_retention_days)
        upkeep = StreamUpkeep(settings, store, DURABLE_GROUP)
        writer = TelemetryWriter(settings, client, store, upkeep, name)
        done = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(upkeep.run(done))
            log.info("daemon started", daemon=NAME, consumer=name, burst=burst)
            try:
                await writer.run(stop, burst=burst)
            finally:
                # It ends by itself, within a moment: cancelled in the middle of a query it might not.
                done.set()
    log.info("daemon stopped", daemon=NAME, new=writer.total.new, rejected=writer.total.rejected)
    return writer.total


class TelemetryWriter:
    """One consumer of the group."""

    def __init__(
        self, settings: Settings, client: RedisClient, store: PositionStore, upkeep: StreamUpkeep, name: str
    ) -> None:
        self._settings = settings
        self._client = client
        self._store = store
        self._upkeep = upkeep
        self._name = name
        self._stream = settings.redis_telemetry_stream
        self._labels = {"instance_id": name}
        self._claim_at = 0.0
        self._failures = 0
        self.total = Written()

    async def run(self, stop: asyncio.Event, *, burst: bool = False) -> None:
        """Outlives every outage of Redis and PostgreSQL."""
        while not stop.is_set():
            try:
                await ensure_group(self._client, self._stream, DURABLE_GROUP, FROM_THE_START)
                # What was lost while nobody read can't be seen any more once somebody does.
                await self._upkeep.measure(self._client)
                await self._take_up_own(stop)
                await self._read_on(stop, burst=burst)
                await self._leave()
                return
            except REDIS_ERRORS as error:
                # A group that is gone (NOGROUP) is made again at the stream's start: what was written is known.
                self._failures += 1
                log.warning("reading the stream failed, trying again", error=str(error), failures=self._failures)
                # After a fail-over the old connection may lead to a server that is no longer the one to ask.
                await self._client.connection_pool.disconnect()
                await wait_for_stop(stop, min(backoff_s(self._failures), LONGEST_PAUSE_S))

    async def _take_up_own(self, stop: asyncio.Event) -> None:
        """What a run before us under this name had in hand when it was killed."""
        while not stop.is_set() and (entries := await self._read(FROM_THE_START, block_ms=None)):
            await self._settle(entries, stop)

    async def _read_on(self, stop: asyncio.Event, *, burst: bool) -> None:
        while not stop.is_set():
            entries = await self._claim() or await self._read(NEW, block_ms=None if burst else BLOCK_MS)
            if entries:
                await self._settle(entries, stop)
            elif burst:
                return

    async def _read(self, start: str, *, block_ms: int | None) -> list[Entry]:
        answer = await self._client.xreadgroup(
            DURABLE_GROUP, self._name, {self._stream: start}, count=self._settings.telemetry_batch_size, block=block_ms
        )
        self._failures = 0
        return entries_of(answer)

    async def _claim(self) -> list[Entry]:
        """What another consumer has held for so long that it must be dead. Looked for a few times in that period."""
        if time.monotonic() < self._claim_at:
            return []
        idle_ms = self._settings.telemetry_claim_idle_ms
        answer: Any = await self._client.xautoclaim(
            self._stream, DURABLE_GROUP, self._name, idle_ms, count=self._settings.telemetry_batch_size
        )
        entries: list[Entry] = list(answer[1])
        self._count_lost(len(answer[2]))
        if entries:
            CLAIMED.labels(**self._labels).inc(len(entries))
            log.info("taking over what a consumer left behind", entries=len(entries))
        else:
            self._claim_at = time.monotonic() + idle_ms / 4000
        return entries

    async def _settle(self, entries: Sequence[Entry], stop: asyncio.Event) -> None:
        """Make the entries durable, then acknowledge them. Told to stop in an outage, they stay for the next run."""
        READ.labels(**self._labels).inc(len(entries))
        written = await self._write(entries, stop)
        if written is None:
            return
        await self._client.xack(self._stream, DURABLE_GROUP, *(entry_id for entry_id, _ in entries))
        self._count_lost(sum(not fields for _, fields in entries))
        self.total += written
        WRITTEN.labels(**self._labels).inc(written.new)
        DUPLICATES.labels(**self._labels).inc(written.seen_before)
        REJECTED.labels(**self._labels).inc(written.rejected)

    def _count_lost(self, count: int) -> None:
        """What was delivered, never acknowledged, and trimmed away by somebody meanwhile."""
        if count:
            STREAM_LOST.inc(count)
            log.error("entries were trimmed from the stream before they were durable", lost=count)

    async def _write(self, entries: Sequence[Entry], stop: asyncio.Event) -> Written | None:
        """None: told to stop while it could not be done."""
        unforeseen = 0
        failures = 0
        while not failures or not stop.is_set():
            try:
                if unforeseen < self._settings.broker_max_attempts:
                    return await self._store.write(entries)
                log.error("giving up on a batch: what fails by itself as well is parked", entries=len(entries))
                return await self._store.write_or_park(entries)
            except (Error, PoolTimeout, OSError) as error:
                failures += 1
                unforeseen += classify(error) is ErrorKind.UNFORESEEN and not blames_the_database(error)
                log.warning("positions are not written yet, trying again", error=str(error).strip(), failures=failures)
            await wait_for_stop(stop, min(backoff_s(failures), LONGEST_PAUSE_S))
        return None

    async def _leave(self) -> None:
        """Take our name out of the group if nothing is pending under it."""
        try:
            pending = await self._client.xpending_range(
                self._stream, DURABLE_GROUP, "-", "+", 1, consumername=self._name
            )
            if not pending:
                await self._client.xgroup_delconsumer(self._stream, DURABLE_GROUP, self._name)
        except redis.RedisError as error:
            log.info("the group still knows our name", error=str(error))
