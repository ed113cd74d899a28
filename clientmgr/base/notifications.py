"""The one LISTEN loop. A notification is only a hint: whoever listens also has to poll now and then."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
from psycopg import AsyncConnection

from clientmgr.base.backoff import backoff_s
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
    """Call `heard` with the payload of each notification on `channel`. Ends only by cancellation.

    `listening` is called whenever listening begins: nobody was notified of what happened before. `lost` is called when
    the connection is gone; a new one is made after a pause that grows.
    """
    failures = 0
    while not being_cancelled():
        try:
            async with await connect() as connection:
                await connection.execute(f"LISTEN {channel}".encode())
                failures = 0
                listening()
                async for notification in connection.notifies():
                    heard(notification.payload)
        except (psycopg.Error, OSError) as error:
            log.warning(
                "not listening, polling until the connection is back", channel=channel, error=str(error).strip()
            )
        lost()
        failures += 1
        # The whole pause, without jitter: a process has one such connection, and polls meanwhile.
        await asyncio.sleep(backoff_s(failures, first_s=FIRST_PAUSE_S, longest_s=LONGEST_PAUSE_S, draw=1.0))
