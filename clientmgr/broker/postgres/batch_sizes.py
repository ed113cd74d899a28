"""How many messages a consumer asks for: more while a backlog lasts, so that what a batch costs is shared. No I/O.

A larger batch also takes longer, and whoever waits for its partition or for its tenants' locks waits for as long. So
the next one is as large as fits into a fixed time, going by the last one.
"""

from typing import Final

GOAL_S: Final = 0.2
"""What a handler may take for a batch that is larger than usual."""
GROWTH: Final = 4
"""At most so many times as large as the last one: a small batch says little of a large one."""


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
        else:
            fitting = messages * min(GROWTH, GOAL_S / max(seconds, 1e-9))
            self.current = max(self._usual, min(self._largest, int(fitting)))

    def reset(self) -> None:
        self.current = self._usual
