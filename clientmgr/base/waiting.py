"""Waiting that does not sleep through an order to stop."""

import asyncio
import contextlib


async def wait_for_stop(stop: asyncio.Event, seconds: float) -> bool:
    """Wait until `stop` is set, but no longer than `seconds`; returns whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
    return stop.is_set()


def being_cancelled() -> bool:
    """Whether the running task was told to end.

    psycopg may answer a cancellation with an error of the query instead. A loop that outlives errors asks here, or it
    would never end.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
