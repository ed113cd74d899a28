"""How many messages are asked for: more while a backlog lasts and batches are quick."""

import pytest

from clientmgr.broker.interface import ConsumerOptions
from clientmgr.broker.postgres import batch_sizes
from clientmgr.broker.postgres.batch_sizes import GOAL_S, BatchSize
from clientmgr.broker.postgres.transport import PostgresBroker
from tests.broker.recording import TOPIC, drain, message, ready


def test_full_and_quick_batches_grow_fourfold_up_to_the_largest() -> None:
    size = BatchSize(100, 1500)
    for expected in (400, 1500, 1500):
        size.note(size.current, 0.001)
        assert size.current == expected


def test_the_next_batch_is_as_large_as_fits_into_the_time_and_never_smaller_than_usual() -> None:
    size = BatchSize(500, 2000)
    size.note(500, GOAL_S / 3)
    assert size.current == 1500
    size.note(1500, GOAL_S)
    assert size.current == 1500
    size.note(1500, GOAL_S * 2)
    assert size.current == 750
    size.note(750, GOAL_S * 2)
    assert size.current == 500


def test_at_the_end_of_a_backlog_the_usual_size_is_asked_for_again() -> None:
    size = BatchSize(500, 2000)
    size.note(500, 0.0)
    size.note(999, 0.0)
    assert size.current == 500


def test_without_a_larger_size_it_stays() -> None:
    size = BatchSize(500, 0)
    size.note(500, 0.0)
    assert size.current == 500


@pytest.mark.anyio
async def test_batches_grow_while_a_backlog_lasts_and_no_message_is_left_or_doubled(
    log_broker: PostgresBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sizes, "GOAL_S", 600.0)  # a busy machine is no reason
    monkeypatch.setattr(batch_sizes, "GROWTH", 2)
    await ready(log_broker)
    for number in range(25):
        await log_broker.publish(TOPIC, [message(number)])
    recorder, _ = await drain(log_broker, options=ConsumerOptions(batch_size=2, largest_batch_size=8))
    assert [len(batch) for batch in recorder.batches] == [2, 4, 8, 8, 3]
    assert recorder.numbers == list(range(25))
