"""Keeps the lag metrics up to date, in whichever one process is to tell of them."""

import asyncio
import contextlib

import psycopg

from clientmgr.broker.postgres.lag import export_lag
from clientmgr.database import Database, Role
from clientmgr.logs import get_logger

log = get_logger(__name__)

EVERY_S = 10.0


async def watch_lag(database: Database, stop: asyncio.Event, *, every_s: float = EVERY_S) -> None:
    """Look now and then, until `stop` is set. A server that is away for a while only costs some looks."""
    while not stop.is_set():
        try:
            async with await database.connect_async(Role.READER, autocommit=True) as connection:
                await export_lag(connection)
        except (psycopg.Error, OSError) as error:
            log.warning("the lag of the subscriptions is not known", error=str(error).strip())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), every_s)
