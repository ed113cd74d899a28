"""Waiting that does not sleep through an order to stop."""

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import TypeVar

Result = TypeVar("Result")


async def wait_for_stop(stop: asyncio.Event, seconds: float) -> bool:
    """Wait until `stop` is set, but no longer than `seconds`; returns whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
    return stop.is_set()


async def unless_stopped(
    stop: asyncio.Event, work: Awaitable[Result], *, finish_within_s: float = 0.0
) -> Result | None:
    """The result of `work`, or None when `stop` is set first and `work` does not end within `finish_within_s` then."""
    task = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and finish_within_s:
            await asyncio.wait({task}, timeout=finish_within_s)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        return None if task.cancelled() else task.result()
    except asyncio.CancelledError:
        task.cancel()
        raise
    finally:
        stopped.cancel()


def being_cancelled() -> bool:
    """Whether somebody has cancelled the running task.

    psycopg may turn a cancellation into an error of the query. A loop that survives errors has to ask here, or it would
    never end.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
