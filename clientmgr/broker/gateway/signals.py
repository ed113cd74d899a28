"""Waking those who wait: a signal that can't be missed between a look and the wait that follows it."""

import asyncio
import contextlib


class Signal:
    """Take `event` first, then look for work, and wait on the event only when there was none."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def notify(self) -> None:
        """Wake everyone who took the event before now."""
        self.event.set()
        self.event = asyncio.Event()


async def wait_any(timeout_s: float | None, *events: asyncio.Event) -> None:
    """Return when one of the events is set, or after `timeout_s` seconds."""
    if any(event.is_set() for event in events):
        return
    waiters = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiters, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiter in waiters:
            waiter.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*waiters, return_exceptions=True)
