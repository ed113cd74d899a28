"""Which part of a failed batch is tried next, so that few bad groups cost few attempts. Pure."""

from collections.abc import Sequence
from typing import Generic, TypeVar

Group = TypeVar("Group")


class Halving(Generic[Group]):
    """Groups that failed together, in parts and in order. What fails is halved until one group alone is to blame."""

    def __init__(self, groups: Sequence[Group], *, first_is_known: bool = False) -> None:
        """`first_is_known`: the first group is to blame. Nothing is known of the others then."""
        self._todo = [groups[:1], groups[1:]] if first_is_known else _halves(groups)
        # If the part before it can be handled, it is to blame: it is halved again without being tried.
        self._to_blame: Sequence[Group] | None = None if first_is_known else self._todo[1]

    @property
    def is_done(self) -> bool:
        return not any(self._todo)

    def next_part(self) -> Sequence[Group]:
        """What is to be tried now. It is taken for handled unless `failed` says otherwise."""
        while not self._todo[0]:
            self._todo.pop(0)
        return self._todo.pop(0)

    def failed(self, part: Sequence[Group]) -> None:
        """Somebody in it is to blame."""
        self._halve(part)

    def succeeded(self) -> None:
        """The part that was tried last."""
        if self._todo and self._todo[0] is self._to_blame and len(self._to_blame) > 1:
            self._halve(self._todo.pop(0))

    def _halve(self, part: Sequence[Group]) -> None:
        halves = _halves(part)
        self._todo[:0] = halves
        self._to_blame = halves[1]


def _halves(groups: Sequence[Group]) -> list[Sequence[Group]]:
    middle = (len(groups) + 1) // 2
    return [groups[:middle], groups[middle:]]
