"""The one LISTEN loop. A notification is only ever a hint: whoever listens also looks by itself now and then."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
from psycopg import AsyncConnection

from clientmgr.base.logs import get_logger
from clientmgr.base.waiting import being_cancelled

log = get_logger(__name__)

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0


async def listen(
    connect: Callable[[], Awaitable[AsyncConnection[Any]]],
    channel: str,
    heard: Callable[[str], None],
    *,
    listening: Callable[[], None],
    lost: Callable[[], None] = lambda: None,
) -> None:
    """Call `heard` with the payload of each notification of `channel`. Ends only by cancellation.

    `listening` is called whenever listening begins: what happened before told nobody. `lost` is called when the
    connection is gone; a new one is made after a pause that grows.
    """
    pause_s = FIRST_PAUSE_S
    while not being_cancelled():
        try:
            async with await connect() as connection:
                await connection.execute(f"LISTEN {channel}".encode())
                pause_s = FIRST_PAUSE_S
                listening()
                async for notification in connection.notifies():
                    heard(notification.payload)
        except (psycopg.Error, OSError) as error:
            log.warning("not listening, looking now and then instead", channel=channel, error=str(error).strip())
        lost()
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
