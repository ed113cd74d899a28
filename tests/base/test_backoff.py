"""The one backoff: its limit doubles, the wait is anything below it, and a drawn wait never changes."""

import pytest

from clientmgr.base.backoff import backoff_s


def test_the_limit_doubles_with_each_attempt_until_it_is_the_longest() -> None:
    limits = [backoff_s(attempt, first_s=0.1, longest_s=1.0, draw=1.0) for attempt in range(1, 7)]
    assert limits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_a_wait_is_anything_up_to_its_limit() -> None:
    waits = [backoff_s(3, first_s=1.0, longest_s=60.0) for _ in range(500)]
    assert 0.0 <= min(waits) < 1.0
    assert 3.0 < max(waits) <= 4.0


@pytest.mark.parametrize("attempt", [0, -1, 1])
def test_no_attempt_is_earlier_than_the_first(attempt: int) -> None:
    assert backoff_s(attempt, first_s=2.0, longest_s=60.0, draw=0.5) == 1.0


def test_any_number_of_attempts_has_a_wait() -> None:
    assert backoff_s(100_000, draw=1.0) == 60.0
