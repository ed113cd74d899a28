"""The durable writer: writes every position of the stream to PostgreSQL and acknowledges it after the commit.

Writers share the consumer group `processor`. What a dead writer has not acknowledged, another writer takes over.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import redis
from psycopg import Error
from psycopg_pool import PoolTimeout

from clientmgr.base.backoff import backoff_s
from clientmgr.base.daemon_process import DaemonWork
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import ErrorKind, blames_the_database, classify
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.base.waiting import wait_for_stop
from clientmgr.contracts.daemons import DURABLE_GROUP
from clientmgr.live.redis_stream import (
    LONGEST_PAUSE_S,
    REDIS_ERRORS,
    Entry,
    RedisClient,
    ensure_group,
    entries_of,
    instance_id,
    open_redis,
)
from streaming.live.telemetry.maintenance import StreamMaintenance
from streaming.live.telemetry.store import PositionStore, Written
from streaming.live.telemetry.telemetry_metrics import CLAIMED, DUPLICATES, READ, REJECTED, STREAM_LOST, WRITTEN

log = get_logger(__name__)

NAME = "telemetry-writer"
BLOCK_MS = 1000
CONNECTION_WITHIN_S = 5.0
"""The wait for a database connection. Short, so that a writer can stop in time during an outage."""
FROM_THE_START = "0"
NEW = ">"


def telemetry_writer(settings: Settings, *, burst: bool = False) -> DaemonWork:
    """What it does in a process of its own, or beside others. Stopped, it finishes its current batch."""

    async def main(stop: asyncio.Event) -> None:
        await write_until_stopped(settings, stop, burst=burst)

    return DaemonWork(NAME, main)


async def write_until_stopped(settings: Settings, stop: asyncio.Event, *, burst: bool = False) -> Written:
    """Write positions until `stop` is set or, in burst mode, until the stream is empty."""
    database = Database.from_settings(settings)
    client = open_redis(settings, blocking=True)
    pool = database.pool_async(Role.WRITER, size=2, timeout_s=CONNECTION_WITHIN_S)
    async with client, pool:
        name = instance_id(settings)
        store = PositionStore(
            pool,
            settings.redis_telemetry_stream,
            settings.telemetry_retention_days,
            largest_bytes=settings.live_max_record_bytes,
        )
        maintenance = StreamMaintenance(settings, store, DURABLE_GROUP)
        writer = TelemetryWriter(settings, client, store, maintenance, name)
        done = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(maintenance.run(done))
            log.info("daemon started", daemon=NAME, consumer=name, burst=burst)
            try:
                await writer.run(stop, burst=burst)
            finally:
                # Not by cancelling it: psycopg may turn that into an error of the query, which the loop survives.
                done.set()
    log.info("daemon stopped", daemon=NAME, new=writer.total.new, rejected=writer.total.rejected)
    return writer.total


class TelemetryWriter:
    """One consumer of the group."""

    def __init__(
        self, settings: Settings, client: RedisClient, store: PositionStore, maintenance: StreamMaintenance, name: str
    ) -> None:
        self._settings = settings
        self._client = client
        self._store = store
        self._maintenance = maintenance
        self._name = name
        self._stream = settings.redis_telemetry_stream
        self._labels = {"instance_id": name}
        for counter in (READ, WRITTEN, DUPLICATES, REJECTED, CLAIMED):
            # At 0: Prometheus does not count the first value of a series as growth, and an alert would miss it.
            counter.labels(**self._labels)
        self._claim_at = 0.0
        self._failures = 0
        self.total = Written()

    async def run(self, stop: asyncio.Event, *, burst: bool = False) -> None:
        """Survives every outage of Redis and PostgreSQL."""
        while not stop.is_set():
            try:
                await ensure_group(self._client, self._stream, DURABLE_GROUP, FROM_THE_START)
                # Measure before reading: a loss can't be seen any more once the group reads on.
                await self._maintenance.measure(self._client)
                await self._settle_own(stop)
                await self._read_on(stop, burst=burst)
                await self._leave()
                return
            except REDIS_ERRORS as error:
                # A lost group (NOGROUP) is created again at the stream's start: what is written already is recognised.
                self._failures += 1
                log.warning("reading the stream failed, trying again", error=str(error), failures=self._failures)
                # After a fail-over the old connection may lead to a server that is no longer the primary.
                await self._client.connection_pool.disconnect()
                await wait_for_stop(stop, backoff_s(self._failures, longest_s=LONGEST_PAUSE_S))

    async def _settle_own(self, stop: asyncio.Event) -> None:
        """Settle what an earlier run under this name had read when it was killed."""
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
        """Take over what another consumer has held for too long: it must be dead. Tried four times in that period."""
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
            log.info("taking over entries that a dead consumer left behind", entries=len(entries))
        else:
            self._claim_at = time.monotonic() + idle_ms / 4000
        return entries

    async def _settle(self, entries: Sequence[Entry], stop: asyncio.Event) -> None:
        """Make the entries durable, then acknowledge them. Stopped in an outage, they stay pending for the next run."""
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
        """Count entries that were delivered, never acknowledged, and trimmed by somebody in between."""
        if count:
            STREAM_LOST.inc(count)
            log.error("entries were trimmed from the stream before they were durable", lost=count)

    async def _write(self, entries: Sequence[Entry], stop: asyncio.Event) -> Written | None:
        """None: stopped before it succeeded."""
        unforeseen = 0
        failures = 0
        while not failures or not stop.is_set():
            try:
                if unforeseen < self._settings.broker_max_attempts:
                    return await self._store.write(entries)
                log.error(
                    "a batch keeps failing, parking the records that fail on their own",
                    entries=len(entries),
                )
                return await self._store.write_or_park(entries)
            except (Error, PoolTimeout, OSError) as error:
                failures += 1
                unforeseen += classify(error) is ErrorKind.UNFORESEEN and not blames_the_database(error)
                log.warning("positions are not written yet, trying again", error=str(error).strip(), failures=failures)
            await wait_for_stop(stop, backoff_s(failures, longest_s=LONGEST_PAUSE_S))
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
