"""The limit's statements: the daemon itself works through a copy, and what it writes is noted, batch for batch.

What is left for the limit is to send these statements again: no transport, no decoding, no reading, no deciding.
"""

import asyncio
import dataclasses
import pickle
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from psycopg import AsyncConnection, AsyncCursor

from bench.writer.databases import Source, settings_for
from clientmgr.base.database import Database
from clientmgr.broker.interface import Batch, Handler, Outcome
from clientmgr.broker.postgres.transport import PostgresBroker
from streaming.runtime import daemon as daemons
from streaming.runtime.daemon import Daemon, Services, consume_on

Statement = tuple[bytes, dict[str, Any]]
DATABASE = "rehearsal"
_WRITES = re.compile(rb"^\s*(INSERT INTO|DELETE FROM|UPDATE) ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NotedBatch:
    """What was in a batch and what came of it."""

    messages: list[bytes]
    statements: list[Statement]


@dataclass(frozen=True, slots=True)
class NotedPartition:
    """The batches of one partition of the log. They depend on each other, those of other partitions do not."""

    batches: list[NotedBatch] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(len(batch.messages) for batch in self.batches)


def rehearse(source: Source, daemon: Daemon, file: Path) -> None:
    """Do all that waits for `daemon` in a copy of the database, and leave what was noted in `file`."""
    url = source.copy(DATABASE)
    partitions = asyncio.run(_note(url, daemon))
    file.write_bytes(pickle.dumps(partitions))
    source.server.drop_database(DATABASE)


def read_lanes(file: Path, lanes: int) -> list[list[NotedBatch]]:
    """The batches for so many connections at once, each with about as much to do; a partition stays with one."""
    partitions: list[NotedPartition] = pickle.loads(file.read_bytes())  # noqa: S301  # we wrote it
    chosen: list[list[NotedBatch]] = [[] for _ in range(lanes)]
    sizes = [0] * lanes
    for partition in sorted(partitions, key=lambda each: each.size, reverse=True):
        lane = sizes.index(min(sizes))
        chosen[lane] += partition.batches
        sizes[lane] += partition.size
    return chosen


async def _note(url: str, daemon: Daemon) -> list[NotedPartition]:
    settings = settings_for(url)
    noted = []
    async with PostgresBroker(Database(url), settings) as broker:
        for partition_id in range(settings.broker_total_partitions):
            partition = NotedPartition()
            await consume_on(broker, _noting(daemon, partition_id, partition), settings, asyncio.Event(), burst=True)
            noted.append(partition)
    return noted


def _noting(daemon: Daemon, partition_id: int, noted: NotedPartition) -> Daemon:
    """The daemon, reading one partition and watched while it does."""

    def sources(services: Services) -> list[daemons.Source]:
        return [
            dataclasses.replace(
                source,
                handler=_noting_handler(source.handler, noted),
                options=dataclasses.replace(source.options, partition_id=partition_id, concurrency=1),
            )
            for source in daemon.sources(services)
        ]

    return dataclasses.replace(daemon, sources=sources)


def _noting_handler(handler: Handler, noted: NotedPartition) -> Handler:
    async def handle(batch: Batch) -> Sequence[Outcome] | None:
        watched = _NotingBatch(batch)
        outcomes = await handler(cast("Batch", watched))
        noted.batches.append(NotedBatch([message.data for message in batch.messages], watched.statements))
        return outcomes

    return handle


class _NotingBatch:
    """A batch whose connection remembers the statements that write; in all else the batch itself."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.statements: list[Statement] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    @property
    def connection(self) -> AsyncConnection[Any]:
        return cast("AsyncConnection[Any]", _Noting(self._batch.connection, self.statements))


class _Noting:
    """A connection or a cursor that remembers the statements that write; in all else what it stands for."""

    def __init__(self, original: AsyncConnection[Any] | AsyncCursor[Any], statements: list[Statement]) -> None:
        self._original = original
        self._statements = statements

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def cursor(self, **options: Any) -> "_Noting":
        return _Noting(cast("AsyncConnection[Any]", self._original).cursor(**options), self._statements)

    async def execute(self, query: bytes | str, parameters: dict[str, Any] | None = None, **options: Any) -> Any:
        encoded = query.encode() if isinstance(query, str) else query
        if parameters is not None and _WRITES.search(encoded):
            self._statements.append((encoded, parameters))
        return await self._original.execute(encoded, parameters, **options)
