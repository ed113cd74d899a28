"""How many messages are asked for: more while a backlog lasts and batches are quick."""

import pytest

from clientmgr.broker.interface import ConsumerOptions
from clientmgr.broker.postgres import batch_sizes
from clientmgr.broker.postgres.batch_sizes import QUICK_S, SLOW_S, BatchSize
from clientmgr.broker.postgres.transport import PostgresBroker
from tests.broker.recording import TOPIC, drain, message, ready


def test_full_and_quick_batches_double_up_to_the_largest() -> None:
    size = BatchSize(500, 1500)
    for expected in (1000, 1500, 1500):
        size.note(size.current, QUICK_S / 2)
        assert size.current == expected


def test_a_slow_batch_is_followed_by_a_smaller_one_and_never_by_less_than_usual() -> None:
    size = BatchSize(500, 2000)
    size.note(500, QUICK_S / 2)
    size.note(1000, (QUICK_S + SLOW_S) / 2)
    assert size.current == 1000, "neither quick nor slow: as it is"
    for _ in range(3):
        size.note(size.current, SLOW_S * 2)
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
    monkeypatch.setattr(batch_sizes, "QUICK_S", 60.0)  # a busy machine is no reason
    monkeypatch.setattr(batch_sizes, "SLOW_S", 600.0)
    await ready(log_broker)
    for number in range(25):
        await log_broker.publish(TOPIC, [message(number)])
    recorder, _ = await drain(log_broker, options=ConsumerOptions(batch_size=2, largest_batch_size=8))
    assert [len(batch) for batch in recorder.batches] == [2, 4, 8, 8, 3]
    assert recorder.numbers == list(range(25))
