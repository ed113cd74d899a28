"""Sending to many sockets by one system call: everything arrives, and who can't take it is named."""

import contextlib
import errno
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.live.broadcast.sending import io_uring
from streaming.live.broadcast.sending.io_uring import Recipients, SendRing, open_ring

pytestmark = pytest.mark.skipif(open_ring() is None, reason="there is no io_uring here, or it may not be used")

Pair = tuple[socket.socket, socket.socket]


@contextlib.contextmanager
def pairs(count: int) -> Iterator[list[Pair]]:
    """Ours and theirs, connected."""
    made = [socket.socketpair() for _ in range(count)]
    try:
        yield made
    finally:
        for pair in made:
            for end in pair:
                end.close()


@pytest.fixture
def ring() -> Iterator[SendRing]:
    with contextlib.closing(SendRing(entries=8)) as ring:
        yield ring


def recipients_of(made: list[Pair]) -> Recipients[int]:
    recipients: Recipients[int] = Recipients()
    for number, (ours, _) in enumerate(made):
        recipients.add(number, ours.fileno())
    return recipients


def test_every_socket_gets_every_byte_in_order_over_many_turns_of_the_ring(ring: SendRing) -> None:
    with pairs(21) as made:
        recipients = recipients_of(made)
        sent = [bytes([number]) * (number % 7 + 1) for number in range(200)]
        for data in sent:
            assert ring.send(recipients, data) == []
        for _, theirs in made:
            assert theirs.recv(65_536) == b"".join(sent)


def test_who_is_full_is_told_with_what_it_took_and_the_others_get_everything(ring: SendRing) -> None:
    with pairs(20) as made:
        recipients = recipients_of(made)
        full, nearly_full = 3, 17
        for number in (full, nearly_full):
            made[number][0].setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    made[number][0].send(b"x" * 4096)
        made[nearly_full][1].recv(100_000)
        large = os.urandom(150_000)
        taken = dict(ring.send(recipients, large))
        assert taken[full] == 0
        assert 0 < taken[nearly_full] < len(large)
        assert taken.keys() == {full, nearly_full}
        assert made[0][1].recv(1_000_000, socket.MSG_WAITALL | socket.MSG_DONTWAIT) == large


def test_a_socket_whose_other_end_is_gone_costs_only_itself_and_raises_no_signal(ring: SendRing) -> None:
    with pairs(12) as made:
        recipients = recipients_of(made)
        made[5][1].close()
        assert ring.send(recipients, b"hello") == [(5, 0)]
        assert all(theirs.recv(10) == b"hello" for number, (_, theirs) in enumerate(made) if number != 5)
        assert ring.working


def test_who_is_removed_gets_nothing_more_and_answers_still_name_the_right_one(ring: SendRing) -> None:
    shuffled = random.Random(7)
    with pairs(40) as made:
        recipients = recipients_of(made)
        left = list(range(40))
        while len(left) > 3:
            gone = left.pop(shuffled.randrange(len(left)))
            recipients.remove(gone)
            assert gone not in recipients
            assert sorted(recipients) == sorted(left)
            assert ring.send(recipients, b"%d " % gone) == []
        made[left[1]][1].close()
        assert ring.send(recipients, b"last") == [(left[1], 0)]
        expected = {number: made[number][1].recv(65_536) for number in (left[0], left[2])}
        assert expected[left[0]] == expected[left[2]]
        assert expected[left[0]].endswith(b"last")


def test_after_a_ring_stops_working_nobody_is_believed_to_have_got_anything(ring: SendRing) -> None:
    with pairs(2) as made:
        recipients = recipients_of(made)
        ring.working = False
        assert ring.send(recipients, b"hello") == [(0, io_uring.UNKNOWN), (1, io_uring.UNKNOWN)]


def test_a_kernel_that_refuses_in_the_middle_ends_the_ring_and_nothing_is_said_of_those_it_did_not_take(
    ring: SendRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pairs(3) as made:
        recipients = recipients_of(made)
        monkeypatch.setattr(io_uring, "_ENTER", 100_000)  # no such call
        assert {taken for _, taken in ring.send(recipients, b"hello")} == {io_uring.UNKNOWN}
        assert not ring.working


def test_where_there_is_no_io_uring_there_is_no_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_uring, "_SETUP", 100_000)
    assert open_ring() is None
    with pytest.raises(OSError, match=os.strerror(errno.ENOSYS)):
        SendRing()


def test_a_closed_ring_leaves_no_file_open() -> None:
    before = open_rings()
    with contextlib.closing(SendRing()):
        assert open_rings() > before
    assert open_rings() == before


def open_rings() -> int:
    return sum("io_uring" in _target(file) for file in Path("/proc/self/fd").iterdir())


def _target(file: Path) -> str:
    try:
        return str(file.readlink())
    except FileNotFoundError:  # another thread closed it meanwhile
        return ""
