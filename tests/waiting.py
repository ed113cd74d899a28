"""Waiting for something to become true, with a deadline and never for a fixed time."""

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
PATIENCE_S = 150.0
"""Long, because it costs nothing while all is well: on a starved machine a process takes a minute to start."""


def eventually(look: Callable[[], Result], what: str, *, within_s: float = PATIENCE_S) -> Result:
    """What `look` returns once that is true in Python's sense; fails by the name of `what` after the deadline."""
    deadline = time.monotonic() + within_s
    while not (result := look()):
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s: {what}"
        time.sleep(0.02)
    return result
