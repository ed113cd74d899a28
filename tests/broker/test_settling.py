"""What becomes of a batch, decided without any transport."""

from typing import cast

import pytest
from prometheus_client import REGISTRY

from clientmgr.base.errors import ErrorKind, PermanentError, TransientError
from clientmgr.broker.interface import DONE, Dead, Message, Outcome, Retry
from clientmgr.broker.settling import Handled, Ledger, Settlement, as_text, pause_after_failure_s

LATER, NEVER = Retry(2.0, "later"), Dead("never", "Why")


def ledger(subscription: str) -> Ledger:
    return Ledger.open("settling", subscription, max_attempts=3)


def test_outcomes_are_sorted_into_done_again_and_dead() -> None:
    settlement = Settlement.of("abcd", [DONE, LATER, NEVER, DONE])
    assert settlement == Settlement(2, [("b", LATER)], [("c", NEVER)])


def test_no_outcomes_mean_that_all_are_done() -> None:
    assert Settlement.of("abc", None) == Settlement(3)


@pytest.mark.parametrize("count", [0, 2, 4])
def test_each_message_needs_one_outcome(count: int) -> None:
    with pytest.raises(TypeError, match=f"{count} outcomes for 3 messages"):
        Settlement.of("abc", [DONE] * count)


@pytest.mark.parametrize("answer", [Retry, Dead, None, "dead", False])
def test_what_is_no_outcome_is_not_taken_for_done(answer: object) -> None:
    with pytest.raises(TypeError, match="which is no outcome"):
        Settlement.of("ab", [DONE, cast("Outcome", answer)])


def test_the_earliest_retry_is_the_one_to_wait_for() -> None:
    assert Settlement.of("ab", [Retry(5.0), Retry(0.5)]).shortest_delay_s == 0.5
    assert Settlement.of("ab", None).shortest_delay_s is None


def test_a_retry_is_never_due_in_the_past_and_its_reason_can_be_stored() -> None:
    columns = Settlement.of("a", [Retry(-1.0, "NUL \0, lone \ud800")]).retry_columns()
    assert columns == {"delays_s": [0.0], "reasons": ["NUL \\0, lone \\ud800"]}


def test_a_group_that_can_not_be_handled_is_dead_as_a_whole_with_the_error() -> None:
    settlement = Settlement.all_dead("ab", KeyError())
    assert settlement.death_columns() == {"error_classes": ["KeyError"] * 2, "exceptions": ["KeyError"] * 2}
    assert settlement.done == 0


def test_parts_add_up_in_their_order() -> None:
    first, second, third = (Message(text) for text in (b"1", b"2", b"3"))
    whole = Handled.together(
        [
            Handled(Settlement.of("ab", [DONE, LATER]), {"x": [first]}),
            Handled(Settlement.of("cd", [NEVER, LATER]), {"x": [second], "y": [third]}),
        ]
    )
    assert whole.settlement == Settlement(1, [("b", LATER), ("d", LATER)], [("c", NEVER)])
    assert whole.publications == {"x": [first, second], "y": [third]}


@pytest.mark.parametrize(
    ("error", "failures", "verdict"),
    [
        (TransientError("away"), 100, ErrorKind.TRANSIENT),
        (PermanentError("broken"), 1, ErrorKind.PERMANENT),
        (KeyError("bug"), 2, ErrorKind.UNFORESEEN),
        (KeyError("bug"), 3, ErrorKind.PERMANENT),
    ],
)
def test_an_outage_lasts_and_a_surprise_is_permanent_at_its_last_attempt(
    error: Exception, failures: int, verdict: ErrorKind
) -> None:
    assert ledger("verdicts").judge(error, messages=1, failures=failures) is verdict


def test_what_is_committed_is_counted_once_in_the_stats_and_in_the_metrics() -> None:
    account = ledger("counting")
    account.count(Settlement.of("abc", [DONE, LATER, NEVER]), 0.0)
    stats = account.stats
    assert (stats.done, stats.retried, stats.dead, stats.batches) == (1, 1, 1, 1)
    labels = {"topic": "settling", "subscription": "counting"}
    names = ("clientmgr_messages_consumed_total", "clientmgr_messages_retried_total", "clientmgr_messages_dead_total")
    assert [REGISTRY.get_sample_value(name, labels) for name in names] == [1.0, 1.0, 1.0]


def test_pauses_grow_up_to_a_quarter_of_a_minute() -> None:
    assert max(pause_after_failure_s(1) for _ in range(200)) <= 0.1
    assert 5.0 < max(pause_after_failure_s(50) for _ in range(200)) <= 15.0


def test_a_long_reason_is_cut() -> None:
    assert len(as_text("x" * 10_000)) == 4000
