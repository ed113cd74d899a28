"""Runs an asynchronous program as a process: it is asked to stop by SIGTERM or Ctrl-C, and a second signal ends it."""

import asyncio
import gc
import signal
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

COLLECTED_AFTER = 50_000
"""Objects made before the garbage collector looks at the young ones. At Python's 700 a daemon under load spends a tenth
of its time looking at messages that make no cycles."""


def run_until_stopped(
    main: Callable[[asyncio.Event], Coroutine[Any, Any, int | None]], *, use_uvloop: bool = True
) -> int:
    """Run `main(stop)` to its end and return its exit code, 0 for None. `stop` is set by the first signal.

    `main` is expected to finish what it has in hand and return. The second signal does what it does to any program, and
    also to one whose event loop is stuck.
    """
    with asyncio.Runner(loop_factory=_uvloop() if use_uvloop else None) as runner:
        loop = runner.get_loop()
        stop = asyncio.Event()

        def handle(_number: int, _frame: FrameType | None) -> None:
            for number in STOP_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            loop.call_soon_threadsafe(stop.set)

        threshold = gc.get_threshold()
        gc.set_threshold(COLLECTED_AFTER, *threshold[1:])
        before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
        try:
            return runner.run(main(stop)) or 0
        finally:
            gc.set_threshold(*threshold)
            for number, handler in before.items():
                signal.signal(number, handler)


def _uvloop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not made for every platform
        return None
    return uvloop.new_event_loop
