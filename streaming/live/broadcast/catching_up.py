"""What came while no instance read: from the stream as far back as it goes, and beyond that from PostgreSQL.

None of it is sent. It is what snapshots, and clients that ask for what they missed, must know.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
import psycopg

from clientmgr.base.database import Database, Role
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.live.redis_stream import Entry, RedisClient, milliseconds_of
from streaming.live.broadcast.history import History
from streaming.live.broadcast.last_positions import LastPositions
from streaming.live.records import Body

log = get_logger(__name__)

ENTRIES_AT_ONCE = 1000
DURABLE_WITHIN_S = 5.0
"""Positions that come now are worth more than old ones in a snapshot."""
BEGINNING = b"0-0"
_QUERIES = named_queries("live/queries/positions.sql")
_encoder = msgspec.json.Encoder()


class CatchingUp:
    """Of one instance."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        last_positions: LastPositions,
        history: History,
        recall: Callable[[Sequence[Entry]], None],
    ) -> None:
        self._database = database
        self._stream = settings.redis_telemetry_stream
        self._last_positions = last_positions
        self._history = history
        self._recall = recall
        self._history_ms = int(settings.live_history_s * 1000)
        self._began = False

    async def catch_up(self, client: RedisClient) -> bytes:
        """Know everything up to the id that is returned: what comes after it is live."""
        await self._last_positions.load(client)
        recently = b"%d-0" % (int(time.time() * 1000) - self._history_ms)
        known = start = self._last_positions.upto or BEGINNING
        whole_from = await self._whole_from(client)
        if known == BEGINNING or _in_order(known) < _in_order(whole_from):
            await self._read_durable(milliseconds_of(known))
        if known == BEGINNING:
            start = recently  # the first instance ever: what is older and not in PostgreSQL yet is soon told anew
        elif not self._began:
            start = min(known, recently, key=_in_order)  # a restart forgot the history: read it again
        if not self._began:
            self._began = True
            self._history.begin(max(milliseconds_of(start), milliseconds_of(whole_from) + 1))
        while entries := await self._after(client, start):
            self._recall(entries)
            start = entries[-1][0]
        return max(start, known, key=_in_order)

    async def _after(self, client: RedisClient, entry_id: bytes) -> list[Entry]:
        return cast("list[Entry]", await client.xrange(self._stream, b"(" + entry_id, b"+", count=ENTRIES_AT_ONCE))

    async def _whole_from(self, client: RedisClient) -> bytes:
        """Up to this id entries may have been trimmed."""
        if not await client.exists(self._stream):
            return BEGINNING
        about: dict[str, Any] = await client.xinfo_stream(self._stream)
        if about.get("entries-added") == about["length"]:
            return BEGINNING  # nothing ever was
        first = about["first-entry"]
        return cast(bytes, first[0] if first else about["last-generated-id"])

    async def _read_durable(self, since_ms: int) -> None:
        try:
            async with asyncio.timeout(DURABLE_WITHIN_S):
                for device_id, ts, body in await asyncio.to_thread(self._newest, since_ms):
                    self._last_positions.put(device_id, ts, body)
        except (psycopg.Error, OSError, TimeoutError) as error:
            reason = str(error).strip() or f"no answer within {DURABLE_WITHIN_S:.0f} s"
            log.warning("snapshots may be old: the newest positions could not be read", error=reason)

    def _newest(self, since_ms: int) -> list[tuple[str, int, bytes]]:
        with self._database.connect(Role.READER, autocommit=True) as connection:
            connection.execute(f"SET statement_timeout = {int(DURABLE_WITHIN_S * 1000)}")
            rows = connection.execute(_QUERIES["newest"], {"since_ms": since_ms}).fetchall()
        return [(device_id, ts, _body(device_id, ts, *measured)) for device_id, ts, *measured in rows]


def _in_order(entry_id: bytes) -> tuple[int, int]:
    milliseconds, _, number = entry_id.partition(b"-")
    return int(milliseconds), int(number or 0)


def _body(  # noqa: PLR0917  # a row
    device_id: str,
    ts: int,
    latitude: float,
    longitude: float,
    speed: float | None,
    course: float | None,
    accuracy: float | None,
    attributes: str | None,
) -> bytes:
    raw = msgspec.UNSET if attributes is None else msgspec.Raw(attributes.encode())
    return _encoder.encode(Body(device_id, latitude, longitude, ts, speed, course, accuracy, raw))
