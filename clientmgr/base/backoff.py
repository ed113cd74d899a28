"""How long to wait before trying again: the one backoff. Exponential, with full jitter."""

import random

FIRST_S = 1.0
LONGEST_S = 60.0
_MOST_DOUBLINGS = 30


def backoff_s(
    attempt: int, *, first_s: float = FIRST_S, longest_s: float = LONGEST_S, draw: float | None = None
) -> float:
    """How long to wait after failed attempt number `attempt`, which counts from 1.

    The limit doubles with each attempt; the wait is anything up to the limit, so that those who failed together do not
    come back together. `draw` (0 to 1) replaces chance where the same question must get the same answer; 1.0 waits the
    whole limit.
    """
    draw = random.random() if draw is None else draw  # noqa: S311  # spreads load, keeps no secret
    return float(draw * min(longest_s, first_s * 2.0 ** min(max(attempt - 1, 0), _MOST_DOUBLINGS)))
