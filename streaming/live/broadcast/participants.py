"""Which device takes part in which events: a map in memory, read again at intervals and after every change."""

import asyncio
import functools
import time
from collections.abc import Mapping, Sequence

import msgspec
import psycopg

from clientmgr.base.database import Database, Role
from clientmgr.base.logs import get_logger
from clientmgr.base.notifications import listen
from clientmgr.base.sqlfiles import named_queries
from clientmgr.base.waiting import being_cancelled
from streaming.live.broadcast.broadcast_metrics import MAP_DEVICES, MAP_FAILURES, MAP_REFRESH, MAP_REFRESHED_AT
from streaming.live.broadcast.frames import TOPIC_PREFIX

log = get_logger(__name__)

CHANNEL = "live_participants"
BETWEEN_REFRESHES_S = 0.2
"""Changes in quick succession are read together."""
ROWS_AT_ONCE = 200
STATEMENT_TIMEOUT_MS = 20_000
READ_WITHIN_S = 40.0
"""Longer than the server's own timeouts: no answer by then means that there is no server."""
_QUERIES = named_queries("live/queries/participants.sql")


class Event(msgspec.Struct, frozen=True, gc=False):
    """An event, as clients see it in the list."""

    event: str
    topic: str
    devices: int


class Participants:
    """The map. While the database is down it stays as it was."""

    def __init__(self, database: Database, refresh_every_s: float) -> None:
        self._database = database
        self._refresh_every_s = refresh_every_s
        self._events: Mapping[str, Sequence[str]] = {}
        self._devices: Mapping[str, Sequence[str]] = {}
        self._listed: Sequence[Event] = ()
        self._changed = asyncio.Event()
        self.loaded = asyncio.Event()

    def events_of(self, device_id: str) -> Sequence[str]:
        return self._events.get(device_id, ())

    def devices_of(self, event: str) -> Sequence[str]:
        return self._devices.get(event, ())

    def events(self) -> Sequence[Event]:
        """All events, sorted by name."""
        return self._listed

    async def run(self) -> None:
        """Keep the map fresh until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            connect = functools.partial(self._database.connect_async, Role.READER, autocommit=True)
            # What changed while nobody listened is read when listening begins.
            tasks.create_task(listen(connect, CHANNEL, lambda _: self._changed.set(), listening=self._changed.set))
            tasks.create_task(self._refresh_for_ever())

    async def _refresh_for_ever(self) -> None:
        while not being_cancelled():
            self._changed.clear()
            await self._refresh()
            await asyncio.sleep(BETWEEN_REFRESHES_S)
            try:
                async with asyncio.timeout(self._refresh_every_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _refresh(self) -> None:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(READ_WITHIN_S):
                # In a thread, so that positions do not wait while a large map is built.
                self._events, self._devices, self._listed = await asyncio.to_thread(self._read)
        except (psycopg.Error, OSError) as error:
            MAP_FAILURES.inc()
            reason = str(error).strip() or type(error).__name__
            log.warning("the map of devices to events could not be read, keeping the last one", error=reason)
            return
        MAP_REFRESH.observe((time.perf_counter() - started) * 1000)
        MAP_REFRESHED_AT.set_to_current_time()
        MAP_DEVICES.set(len(self._events))
        self.loaded.set()

    def _read(self) -> tuple[dict[str, tuple[str, ...]], dict[str, list[str]], list[Event]]:
        events: dict[str, tuple[str, ...]] = {}
        devices: dict[str, list[str]] = {}
        shared: dict[tuple[str, ...], tuple[str, ...]] = {}
        with self._database.connect(Role.READER, autocommit=True) as connection:
            connection.execute(f"SET statement_timeout = {STATEMENT_TIMEOUT_MS}")
            cursor = connection.execute(_QUERIES["events_by_device"])
            # A few rows at a time: psycopg holds the interpreter lock while it converts a portion. Most devices are in
            # the same events as others: they share a tuple, so that the garbage collector has less to visit.
            while rows := cursor.fetchmany(ROWS_AT_ONCE):
                for device_id, entered in rows:
                    found = tuple(entered)
                    events[device_id] = found = shared.setdefault(found, found)
                    for event in found:
                        devices.setdefault(event, []).append(device_id)
        listed = [Event(event, TOPIC_PREFIX + event, len(entered)) for event, entered in sorted(devices.items())]
        return events, devices, listed
