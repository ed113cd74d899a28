"""Chooses the sender of an instance, once, when it starts."""

from streaming.live.broadcast.sending.interface import Sender
from streaming.live.broadcast.sending.io_uring import open_ring
from streaming.live.broadcast.sending.plain import PlainSender
from streaming.live.broadcast.sending.ring import RingSender


def choose_sender(*, io_uring: bool) -> Sender:
    """io_uring where it is wanted (LIVE_IO_URING) and the kernel lets us use it, plain sends otherwise."""
    ring = open_ring() if io_uring else None
    return PlainSender() if ring is None else RingSender(ring)
