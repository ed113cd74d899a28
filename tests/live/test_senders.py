"""Which sender an instance gets."""

import contextlib

import pytest

from streaming.live.broadcast.sending import io_uring
from streaming.live.broadcast.sending.auto import choose_sender
from streaming.live.broadcast.sending.io_uring import open_ring


def name_of_sender(*, io_uring: bool) -> str:
    with contextlib.closing(choose_sender(io_uring=io_uring)) as sender:
        return sender.name


def test_the_plain_sender_is_chosen_where_io_uring_is_switched_off() -> None:
    assert name_of_sender(io_uring=False) == "plain"


def test_the_plain_sender_is_chosen_where_the_kernel_refuses_io_uring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_uring, "_SETUP", 100_000)  # no such call
    assert name_of_sender(io_uring=True) == "plain"


@pytest.mark.skipif(open_ring() is None, reason="there is no io_uring here, or it may not be used")
def test_the_ring_is_chosen_where_the_kernel_allows_it() -> None:
    assert name_of_sender(io_uring=True) == "io_uring"
