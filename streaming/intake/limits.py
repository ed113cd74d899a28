"""How much a key and an address may send: a token bucket each, and 429 for more."""

import math
from typing import Final

from clientmgr.base.budget import Budget
from streaming.intake.problems import RefusedError

MOST_REMEMBERED: Final = 100_000


class RateLimit:
    """The buckets of all keys, or of all addresses. One that is full again is as good as none."""

    def __init__(self, whose: str, per_second: float, burst_s: float) -> None:
        self._whose = whose
        self._per_second = per_second
        self._burst = max(1.0, per_second * burst_s)
        self._budgets: dict[str, Budget] = {}

    def take(self, name: str, amount: float, now: float) -> None:
        """Take so much, or raise RefusedError that says when to come again."""
        budget = self._budgets.get(name)
        if budget is None:
            if len(self._budgets) >= MOST_REMEMBERED:
                self._forget(now)
            budget = self._budgets[name] = Budget(self._per_second, self._burst, now)
        if not budget.take(now, amount):
            wait_s = max(1, math.ceil(budget.wait_s(amount)))
            raise RefusedError(
                429,
                f"more than {self._per_second:g} events a second from this {self._whose}; try again in {wait_s} s",
                headers=(("retry-after", str(wait_s)),),
            )

    def _forget(self, now: float) -> None:
        self._budgets = {name: budget for name, budget in self._budgets.items() if not budget.is_full(now)}
        if len(self._budgets) >= MOST_REMEMBERED:
            # So many are at work at once: forgetting the oldest half gives each of them one more burst.
            self._budgets = dict(list(self._budgets.items())[MOST_REMEMBERED // 2 :])
