"""Runs daemons as a process: logs, metrics and signals once, and the work of each in one event loop.

One daemon a process is the rule on a server. On a small machine several that may share share one: Python and its
libraries are most of what an idle daemon takes.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from clientmgr.base.async_main import run_until_stopped
from clientmgr.base.logs import configure_logging, get_logger
from clientmgr.base.metrics_server import serve_metrics
from clientmgr.base.settings import Settings

log = get_logger(__name__)

SHARED_NAME = "daemons"
"""What the log calls a process of several where it speaks for all of them."""


@dataclass(frozen=True)
class DaemonWork:
    """What a daemon does until `stop` is set. It finishes what it has in hand, and returns an exit code, None for 0."""

    name: str
    main: Callable[[asyncio.Event], Coroutine[Any, Any, int | None]]
    use_uvloop: bool = True


def run_as_process(settings: Settings, works: Sequence[DaemonWork]) -> int:
    """Run them until SIGTERM or Ctrl-C. A second signal ends the process at once."""
    configure_logging(settings, process=works[0].name if len(works) == 1 else SHARED_NAME)

    async def main(stop: asyncio.Event) -> int:
        async with serve_metrics(settings):
            return await run_together(works, stop)

    return run_until_stopped(main, use_uvloop=all(work.use_uvloop for work in works))


async def run_together(works: Sequence[DaemonWork], stop: asyncio.Event) -> int:
    """Run all to their end. One that fails has the others stopped: they are restarted as one. Raises its error."""

    async def run(work: DaemonWork) -> int:
        if len(works) > 1:
            # Each task has a context of its own: what is logged in it says whose it is.
            structlog.contextvars.bind_contextvars(process=work.name)
        code = 1
        try:
            code = await work.main(stop) or 0
        finally:
            if code:
                stop.set()
        return code

    tasks = [asyncio.create_task(run(work), name=work.name) for work in works]
    codes: list[int] = []
    errors: list[BaseException] = []
    for work, result in zip(works, await asyncio.gather(*tasks, return_exceptions=True), strict=True):
        if isinstance(result, BaseException):
            if errors:
                log.error("failed too", daemon=work.name, exc_info=result)
            errors.append(result)
        else:
            codes.append(result)
    if errors:
        raise errors[0]
    return max(codes)
