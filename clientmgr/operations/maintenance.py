"""What has to be done now and then for the system as a whole, by some process that is always there. The Pub/Sub
gateway is such a one; several who do it at once do no harm.
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
from clientmgr.operations.system_metrics import export_standing

log = get_logger(__name__)

TRIM_EVERY_S = 600.0
EXPORT_LAG_EVERY_S = 10.0
EXPORT_STANDING_EVERY_S = 60.0


async def keep_up(
    settings: Settings,
    database: Database,
    *,
    trim_every_s: float = TRIM_EVERY_S,
    lag_every_s: float = EXPORT_LAG_EVERY_S,
    standing_every_s: float = EXPORT_STANDING_EVERY_S,
) -> None:
    """Delete old messages that nobody needs; keep the metrics of the whole current where they are served. Cancel it."""

    async def trim_log(connection: AsyncConnection[Any]) -> None:
        await trim(connection, retention_hours=settings.broker_retention_hours)
        await forget_trimmed(connection)

    async def tell_standing(connection: AsyncConnection[Any]) -> None:
        await export_standing(connection, sync_tolerance=settings.sync_tolerance)

    async with asyncio.TaskGroup() as chores:
        chores.create_task(_repeat(database, Role.WRITER, trim_log, trim_every_s))
        if settings.metrics_port:
            chores.create_task(_repeat(database, Role.READER, LagExport(), lag_every_s))
            chores.create_task(_repeat(database, Role.READER, tell_standing, standing_every_s))


async def _repeat(
    database: Database, role: Role, chore: Callable[[AsyncConnection[Any]], Awaitable[None]], every_s: float
) -> None:
    """A server that is away for a while only costs a turn."""
    while True:
        try:
            async with await database.connect_async(role, autocommit=True) as connection:
                await chore(connection)
        except (psycopg.Error, OSError) as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise asyncio.CancelledError from error  # a query that is cancelled with us may speak up first
            log.warning("upkeep failed, next time perhaps", error=str(error).strip())
        await asyncio.sleep(every_s)
