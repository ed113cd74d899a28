"""Finding who is to blame for a failed batch: few attempts, and every part in its order."""

from collections.abc import Sequence

import pytest

from clientmgr.broker.postgres.halving import Halving


def blamed(groups: Sequence[int], bad: set[int], *, first_is_known: bool = False) -> tuple[list[int], list[int], int]:
    """Who was blamed, who was handled, and how many attempts that took."""
    halving = Halving(groups, first_is_known=first_is_known)
    to_blame: list[int] = []
    handled: list[int] = []
    attempts = 0
    while not halving.is_done:
        part = halving.next_part()
        attempts += 1
        if not bad.intersection(part):
            halving.succeeded()
            handled += part
        elif len(part) > 1:
            halving.failed(part)
        else:
            to_blame += part
    return to_blame, handled, attempts


@pytest.mark.parametrize("bad", [{0}, {99}, {50}, {3, 4, 97}, set(range(0, 100, 10)), set(range(100))])
def test_all_that_are_to_blame_are_found_and_nobody_else(bad: set[int]) -> None:
    to_blame, handled, _ = blamed(range(100), bad)
    assert to_blame == sorted(bad)
    assert handled == [group for group in range(100) if group not in bad]


def test_a_half_that_must_be_to_blame_is_not_tried_as_a_whole() -> None:
    assert blamed(range(64), {63})[2] == 7  # six halves that can be handled, and the one to blame


def test_when_the_first_is_known_the_others_are_tried_together() -> None:
    assert blamed(range(100), {0}, first_is_known=True)[2] == 2


def test_groups_that_fail_together_only_are_handled_alone() -> None:
    halving = Halving(range(2))
    assert [list(halving.next_part()), list(halving.next_part())] == [[0], [1]]
    assert halving.is_done
