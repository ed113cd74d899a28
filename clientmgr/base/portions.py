"""Many things, some at a time. (Python's own `itertools.batched` comes with 3.12.)"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def portions(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Neighbours together, `size` at most."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
