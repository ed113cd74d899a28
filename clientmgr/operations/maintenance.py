"""Recurring tasks for the system as a whole: deleting old messages, erasing deleted people, exporting metrics.

A process that always runs does them, such as the Pub/Sub gateway. Several processes may do them at once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
from psycopg import AsyncConnection

from clientmgr.base.database import Database, Role
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.broker.error_topics import forget_trimmed
from clientmgr.broker.postgres.lag import LagExport
from clientmgr.broker.postgres.retention import trim
from clientmgr.erasure.schedule import LOOK_EVERY_S, sweep_regularly
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
    erasure_look_every_s: float = LOOK_EVERY_S,
) -> None:
    """Delete old messages, erase what is deleted, and keep the system's metrics current. Runs until it is cancelled."""

    async def trim_log(connection: AsyncConnection[Any]) -> None:
        await trim(connection, retention_hours=settings.broker_retention_hours)
        await forget_trimmed(connection)

    async def export_metrics(connection: AsyncConnection[Any]) -> None:
        await export_system_metrics(connection, sync_tolerance=settings.sync_tolerance)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_repeat(database, Role.WRITER, trim_log, trim_every_s))
        tasks.create_task(sweep_regularly(settings, database, look_every_s=erasure_look_every_s))
        if settings.metrics_port:
            tasks.create_task(_repeat(database, Role.READER, LagExport(), lag_every_s))
            tasks.create_task(_repeat(database, Role.READER, export_metrics, metrics_every_s))


async def _repeat(
    database: Database, role: Role, task: Callable[[AsyncConnection[Any]], Awaitable[None]], every_s: float
) -> None:
    """Do it again and again. While the server is away, a turn is skipped."""
    while True:
        try:
            async with await database.connect_async(role, autocommit=True) as connection:
                await task(connection)
        except (psycopg.Error, OSError) as error:
            if (ours := asyncio.current_task()) is not None and ours.cancelling():
                raise asyncio.CancelledError from error  # a query that is cancelled with us may raise first
            log.warning("maintenance failed, it is tried again", error=str(error).strip())
        await asyncio.sleep(every_s)
