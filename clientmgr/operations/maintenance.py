"""Recurring tasks of the whole system: old messages go, deleted people are erased, the audit log is anchored, metrics
and samples are taken.

A process that always runs does them, such as the Pub/Sub gateway. Several processes may do them at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import psycopg
from psycopg import AsyncConnection

from clientmgr.audit.anchoring import NotAnchoredError, anchor_log
from clientmgr.audit.log import AuditLogger
from clientmgr.audit.places.configured import anchor_places
from clientmgr.audit.places.interface import AnchorPlace
from clientmgr.audit.verification import Finding, FindingKind, Verdict, record
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import ClientManagerError
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.broker.error_topics import forget_trimmed
from clientmgr.broker.postgres.lag import LagExport
from clientmgr.broker.postgres.retention import forget_keys, trim
from clientmgr.erasure.schedule import LOOK_EVERY_S, sweep_regularly
from clientmgr.operations.failures.finding import QUERIES as REPLAYS
from clientmgr.operations.heartbeats import QUERIES as HEARTBEATS
from clientmgr.operations.samples import SAMPLE_EVERY_S, take_sample
from clientmgr.operations.system_metrics import export_system_metrics

log = get_logger(__name__)

TRIM_EVERY_S = 600.0
EXPORT_LAG_EVERY_S = 10.0
EXPORT_METRICS_EVERY_S = 60.0


async def run_maintenance(
    settings: Settings,
    database: Database,
    *,
    trim_every_s: float = TRIM_EVERY_S,
    lag_every_s: float = EXPORT_LAG_EVERY_S,
    metrics_every_s: float = EXPORT_METRICS_EVERY_S,
    sample_every_s: float = SAMPLE_EVERY_S,
    erasure_look_every_s: float = LOOK_EVERY_S,
) -> None:
    """Delete old messages, erase what is deleted, anchor the audit log, keep the system's metrics current.

    Runs until it is cancelled.
    """

    async def trim_log(connection: AsyncConnection[Any]) -> None:
        await trim(connection, retention_hours=settings.broker_retention_hours)
        await forget_trimmed(connection)
        await connection.execute(REPLAYS["forget_replays"])
        await connection.execute(HEARTBEATS["forget"])
        await forget_keys(connection, retention_hours=settings.broker_retention_hours)

    async def export_metrics(connection: AsyncConnection[Any]) -> None:
        await export_system_metrics(connection, sync_tolerance=settings.sync_tolerance)

    audit, places = AuditLogger.from_settings(settings), anchor_places(settings)

    async def anchor_audit_log() -> None:
        await asyncio.to_thread(_anchor, database, audit, places)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_again_and_again(anchor_audit_log, settings.audit_anchor_minutes * 60))
        tasks.create_task(_repeat(database, Role.WRITER, trim_log, trim_every_s))
        tasks.create_task(_repeat(database, Role.WRITER, take_sample, sample_every_s))
        tasks.create_task(sweep_regularly(settings, database, look_every_s=erasure_look_every_s))
        if settings.metrics_port:
            tasks.create_task(_repeat(database, Role.READER, LagExport(), lag_every_s))
            tasks.create_task(_repeat(database, Role.READER, export_metrics, metrics_every_s))


async def _repeat(
    database: Database, role: Role, task: Callable[[AsyncConnection[Any]], Awaitable[None]], every_s: float
) -> None:
    """Do it again and again, each time on a new connection."""

    async def once() -> None:
        async with await database.connect_async(role, autocommit=True) as connection:
            await task(connection)

    await _again_and_again(once, every_s)


async def _again_and_again(task: Callable[[], Awaitable[None]], every_s: float) -> None:
    """While the server is away, a turn is skipped."""
    while True:
        try:
            await task()
        except (psycopg.Error, OSError, ClientManagerError) as error:
            if (ours := asyncio.current_task()) is not None and ours.cancelling():
                raise asyncio.CancelledError from error  # a query that is cancelled with us may raise first
            log.warning("maintenance failed, it is tried again", error=str(error).strip())
        await asyncio.sleep(every_s)


def _anchor(database: Database, audit: AuditLogger, places: Sequence[AnchorPlace]) -> None:
    try:
        written = anchor_log(database, audit, places, actor="maintenance")
    except NotAnchoredError as error:
        # The alert on findings fires now, and not after the next night.
        log.error("the audit log does not continue what was anchored", error=str(error))
        found = [Finding(chain, seq, problem, FindingKind.ANCHOR) for chain, seq, problem in error.obstacles]
        with database.connect(Role.WRITER) as connection:
            record(connection, Verdict.of(found))
        return
    for place in written:
        if not place.is_kept:
            log.warning("the audit log could not be anchored in one place", place=place.place, error=place.outcome)
