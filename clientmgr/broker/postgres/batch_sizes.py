"""How many messages a consumer asks for: more while a backlog lasts, so that what a batch costs is shared. No I/O.

A larger batch also takes longer, and whoever waits for its partition or for its tenants' locks waits for as long. So it
grows only while batches are quick.
"""

from typing import Final

QUICK_S: Final = 0.1
"""A handler that was done by then gets twice as much the next time,"""
SLOW_S: Final = 0.25
"""and one that was not done by then half as much."""


class BatchSize:
    """The size to ask for next is `current`: from `usual` to `largest`."""

    def __init__(self, usual: int, largest: int) -> None:
        self._usual = usual
        self._largest = max(usual, largest)
        self.current = usual

    def note(self, messages: int, seconds: float) -> None:
        """A batch of so many messages, for which `current` was asked, was handled in so many seconds."""
        if messages < self.current:
            self.reset()  # there was no more: what comes next is new, and should not wait for company
        elif seconds > SLOW_S:
            self.current = max(self._usual, self.current // 2)
        elif seconds < QUICK_S:
            self.current = min(self._largest, self.current * 2)

    def reset(self) -> None:
        self.current = self._usual
