"""Writes positions to PostgreSQL: a batch in one statement, a partition per day, bad records parked with a reason."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import msgspec
from psycopg import Error, errors
from psycopg_pool import AsyncConnectionPool

from clientmgr.base.errors import InvalidInputError, blames_the_database, is_permanent, is_transient
from clientmgr.base.logs import get_logger
from clientmgr.base.sqlfiles import named_queries
from clientmgr.live.redis_stream import Entry
from streaming.live.records import LARGEST_RECORD, Position, decode_record, record_size

log = get_logger(__name__)

_QUERIES = named_queries("live/queries/positions.sql")
LONGEST_REASON = 1000
START_OF_A_VALUE = 1000


@dataclass(frozen=True, slots=True)
class Rejected:
    """An entry that can't be written."""

    entry: Entry
    reason: str


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a batch."""

    new: int = 0
    seen_before: int = 0
    rejected: int = 0

    def __add__(self, other: "Written") -> "Written":
        return Written(self.new + other.new, self.seen_before + other.seen_before, self.rejected + other.rejected)


class PositionStore:
    """Writes batches, one at a time."""

    def __init__(
        self, pool: AsyncConnectionPool, stream: str, retention_days: int, *, largest_bytes: int = LARGEST_RECORD
    ) -> None:
        self._pool = pool
        self._stream = stream
        self._largest_bytes = largest_bytes
        self._retention = timedelta(days=retention_days) if retention_days else None
        self._known_days: set[date] = set()

    async def write(self, entries: Sequence[Entry]) -> Written:
        """Make a batch durable. An entry that the database refuses is parked alone."""
        positions, rejected = self._decode(entries)
        try:
            return await self._write(positions, rejected)
        except Error as error:
            if not is_permanent(error):
                raise
            log.warning("a batch was refused, writing its records one by one", error=str(error).strip())
        return await self._write_one_by_one(positions, rejected, is_permanent)

    async def write_or_park(self, entries: Sequence[Entry]) -> Written:
        """The last resort for a batch that keeps failing: park each record that fails on its own too.

        An outage, a missing table or a missing privilege is not a record's fault: it is raised, and nothing is parked.
        """
        positions, rejected = self._decode(entries)
        return await self._write_one_by_one(
            positions, rejected, lambda error: not (is_transient(error) or blames_the_database(error))
        )

    async def maintain_partitions(self, now: datetime) -> None:
        """Create the partitions of today and tomorrow; drop partitions and parked records older than the retention."""
        await self._ensure_days({now.date(), (now + timedelta(days=1)).date()})
        if self._retention is None:
            return
        async with self._pool.connection() as connection:
            await connection.execute(_QUERIES["forget_rejected"], {"before": now - self._retention})
        async with self._pool.connection() as connection:
            try:
                cursor = await connection.execute(_QUERIES["drop_days"], {"oldest": (now - self._retention).date()})
            except errors.LockNotAvailable:
                log.info("old positions are in use, will drop them later")
                return
            row = await cursor.fetchone()
            if row and row[0]:
                log.info("old positions dropped", days=row[0])

    def _decode(self, entries: Sequence[Entry]) -> tuple[list[tuple[Entry, Position]], list[Rejected]]:
        now = datetime.now(UTC)
        positions: list[tuple[Entry, Position]] = []
        rejected: list[Rejected] = []
        for entry in entries:
            if not entry[1]:
                continue
            try:
                position = decode_record(entry[1], now, self._largest_bytes)
                if self._retention is not None and position.fixed_at < now - self._retention:
                    raise InvalidInputError(
                        "ts", f"a time of the last {self._retention.days} days", position.fixed_at.isoformat()
                    )
            except InvalidInputError as error:
                rejected.append(Rejected(entry, str(error)))
            else:
                positions.append((entry, position))
        return positions, rejected

    async def _write(self, positions: Sequence[tuple[Entry, Position]], rejected: Sequence[Rejected]) -> Written:
        new = 0
        await self._ensure_days({position.fixed_at.date() for _, position in positions})
        async with self._pool.connection() as connection, connection.transaction():
            if positions:
                cursor = await connection.execute(_QUERIES["insert"], _columns([found for _, found in positions]))
                new = cursor.rowcount
            if rejected:
                await connection.execute(_QUERIES["reject"], self._parked(rejected))
        return Written(new, len(positions) - new, len(rejected))

    async def _write_one_by_one(
        self,
        positions: Sequence[tuple[Entry, Position]],
        rejected: Sequence[Rejected],
        is_hopeless: Callable[[Error], bool],
    ) -> Written:
        # Somebody may have dropped a partition that we believe to exist.
        self._known_days.clear()
        written = Written()
        refused = list(rejected)
        for entry, position in positions:
            try:
                written += await self._write([(entry, position)], [])
            except Error as error:
                if not is_hopeless(error):
                    raise
                refused.append(Rejected(entry, str(error).strip()))
        # Parked last: if that fails, the others are durable already.
        return written + await self._write([], refused)

    async def _ensure_days(self, days: set[date]) -> None:
        missing = sorted(days - self._known_days)
        if missing:
            async with self._pool.connection() as connection:
                await connection.execute(_QUERIES["ensure_days"], {"days": missing})
            self._known_days.update(missing)

    def _parked(self, rejected: Sequence[Rejected]) -> dict[str, object]:
        return {
            "stream": self._stream,
            "entry_id": [found.entry[0].decode() for found in rejected],
            "reason": [found.reason.replace("\0", "")[:LONGEST_REASON] for found in rejected],
            "fields": [self._fields(found) for found in rejected],
        }

    def _fields(self, rejected: Rejected) -> bytes:
        """Of a record that is too large, enough to see whose it is."""
        fields = rejected.entry[1]
        return _as_json(fields, START_OF_A_VALUE if record_size(fields) > self._largest_bytes else None)


def _columns(positions: Sequence[Position]) -> dict[str, list[object]]:
    return {
        "device_id": [position.device_id for position in positions],
        "ts": [position.fixed_at for position in positions],
        "latitude": [position.payload.latitude for position in positions],
        "longitude": [position.payload.longitude for position in positions],
        "altitude": [position.payload.altitude for position in positions],
        "speed": [position.payload.speed for position in positions],
        "course": [position.payload.course for position in positions],
        "accuracy": [position.payload.accuracy for position in positions],
        "satellites": [position.payload.satellites for position in positions],
        "codec": [position.codec for position in positions],
        "attributes": [None if position.attributes is None else position.attributes.decode() for position in positions],
    }


def _as_json(fields: dict[bytes, bytes], at_most: int | None) -> bytes:
    def readable(value: bytes) -> str:
        return value[:at_most].decode(errors="backslashreplace")

    return msgspec.json.encode({readable(name): readable(value) for name, value in fields.items()})
