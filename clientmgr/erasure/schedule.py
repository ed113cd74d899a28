"""When the next sweep is due, how far erasure is behind, and the loop of the process that sweeps."""

import asyncio
import threading
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import SettingsError
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.erasure.sweep import SweepRunningError, SweepStoppedError, sweep

log = get_logger(__name__)

QUERIES = named_queries("erasure/queries/sweeps.sql")

LOOK_EVERY_S = 60.0
REST = 1.0
"""As long as the work itself: the process has other things to do."""


def sweep_every_s(settings: Settings) -> float:
    """A quarter of the time that erasure may take: three sweeps may fail."""
    return settings.erasure_sweep_minutes * 60 or settings.erasure_hours * 3600 / 4


async def erasure_lag_s(connection: AsyncConnection[Any]) -> float:
    """What was deleted longer ago than this is erased everywhere. 0: there is no customer yet."""
    async with connection.cursor(row_factory=tuple_row) as cursor:
        row = await (await cursor.execute(QUERIES["lag"])).fetchone()
    return float(row[0]) if row and row[0] is not None else 0.0


async def sweep_regularly(settings: Settings, database: Database, *, look_every_s: float = LOOK_EVERY_S) -> None:
    """Sweep whenever it is due, until cancelled. Any number of processes may: one of them does it."""
    stop = threading.Event()
    try:
        while True:
            try:
                async with await database.connect_async(Role.READER, autocommit=True) as connection:
                    due = await erasure_lag_s(connection) >= sweep_every_s(settings)
                if due:
                    await asyncio.to_thread(sweep, database, settings, stop=stop, rest=REST)
            except SweepRunningError:
                pass
            except (psycopg.Error, OSError, SettingsError) as error:
                # Not the text of what PostgreSQL says: it may quote a row.
                log.warning("the sweep failed, it is tried again", error=type(error).__name__)
            await asyncio.sleep(look_every_s)
    except SweepStoppedError:
        return
    finally:
        stop.set()
