"""Sends the same bytes to many sockets by one system call: the part of Linux's io_uring that a broadcast needs.

A `send` to each of a thousand sockets enters the kernel a thousand times, which is a third of the whole cost. Here a
request is prepared once for each socket. A broadcast writes the address of the bytes into all requests and copies them
into the ring. No request ever waits: sockets that could not take everything at once are returned.

The kernel reads the ring only during our call and has finished with it when the call returns. So nothing needs
synchronising, and no answer comes later.
"""

import ctypes
import errno
import mmap
import os
import socket
import struct
import sys
from array import array
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

ENTRIES = 256
"""Sends in one call. More sends take several calls."""
UNKNOWN = -1
"""The kernel did not say how much this socket took. Nothing more may be sent: it might not fit what went before."""

# <linux/io_uring.h>
_SETUP, _ENTER = 425, 426
_SUBMIT_ALL = 1 << 7
_GET_EVENTS = 1
_SINGLE_MMAP = 1
_SEND = 26
_REQUESTS_AT = 0x10000000
_PARAMETERS = struct.Struct("=10I8IQ8IQ")
_SETUP_FLAGS_AT = 8
_REQUEST = struct.Struct("=BBHiQQIIQ24x")
_ADDRESS_AT, _LENGTH_AT, _NUMBER_AT = 16, 24, 32
_ANSWER = struct.Struct("=QiI")
_U32 = 0xFFFFFFFF
_NEVER_WAIT = getattr(socket, "MSG_DONTWAIT", 0) | getattr(socket, "MSG_NOSIGNAL", 0)


class Recipients(Generic[T]):
    """Sockets that are sent to together: the prepared request of each, and its owner."""

    def __init__(self) -> None:
        self.requests = bytearray()
        self._members: list[T] = []
        self._places: dict[T, int] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[T]:
        return iter(self._members)

    def __contains__(self, member: object) -> bool:
        return member in self._places

    def add(self, member: T, descriptor: int) -> None:
        """`descriptor` is of its socket, which must stay open until the member is removed."""
        self._members.append(member)
        self.requests += _REQUEST.pack(_SEND, 0, 0, descriptor, 0, 0, 0, _NEVER_WAIT, 0)
        self._number(member, len(self._members) - 1)

    def remove(self, member: T) -> None:
        """The last member takes its place, so that no other has to move."""
        place, last = self._places.pop(member), self._members.pop()
        size = _REQUEST.size
        last_request = self.requests[-size:]
        del self.requests[-size:]
        if last is not member:
            self._members[place] = last
            self.requests[place * size : (place + 1) * size] = last_request
            self._number(last, place)

    def __getitem__(self, place: int) -> T:
        return self._members[place]

    def are_to_get(self, data: bytes) -> None:
        """Point all requests at these bytes, which must stay alive until the requests are answered."""
        address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0
        with memoryview(self.requests) as requests, requests.cast("Q") as longs, requests.cast("I") as words:
            longs[_ADDRESS_AT // 8 :: _REQUEST.size // 8] = array("Q", [address]) * len(self)
            words[_LENGTH_AT // 4 :: _REQUEST.size // 4] = array("I", [len(data)]) * len(self)

    def _number(self, member: T, place: int) -> None:
        self._places[member] = place
        # Answers carry the number of their request.
        at = place * _REQUEST.size + _NUMBER_AT
        self.requests[at : at + 8] = place.to_bytes(8, sys.byteorder)


class SendRing:
    """Raises `OSError` where there is no io_uring, or where we may not use it, as in many containers."""

    def __init__(self, entries: int = ENTRIES) -> None:
        if not sys.platform.startswith("linux"):
            raise OSError(errno.ENOSYS, "io_uring exists on Linux only")
        self._system_call = ctypes.CDLL(None, use_errno=True).syscall
        self._system_call.restype = ctypes.c_long
        parameters = bytearray(_PARAMETERS.size)
        # A request that can't be started must not stop the requests after it.
        struct.pack_into("=I", parameters, _SETUP_FLAGS_AT, _SUBMIT_ALL)
        shared_parameters = (ctypes.c_char * len(parameters)).from_buffer(parameters)
        self._ring = int(self._system_call(_SETUP, ctypes.c_uint(entries), shared_parameters))
        if self._ring < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        values = _PARAMETERS.unpack(parameters)
        self._size, self._answers_size, features = values[0], values[1], values[5]
        _, requests_tail, _, _, _, _, order, _, _ = values[10:19]
        answers_head, answers_tail, _, _, _, answers, _, _, _ = values[19:28]
        if not features & _SINGLE_MMAP:
            os.close(self._ring)
            raise OSError(errno.ENOSYS, "the kernel's io_uring is too old")
        length = max(order + self._size * 4, answers + self._answers_size * _ANSWER.size)
        self._shared = mmap.mmap(self._ring, length)
        self._requests = mmap.mmap(self._ring, self._size * _REQUEST.size, offset=_REQUESTS_AT)
        self._words = memoryview(self._shared).cast("I")
        self._requests_tail = requests_tail // 4
        self._answers_head, self._answers_tail, self._answers = answers_head // 4, answers_tail // 4, answers
        for slot in range(self._size):
            self._words[order // 4 + slot] = slot
        self.working = True
        """False: the kernel refused to go on. What was not sent was returned, and this ring can't be used any more."""

    def send(self, recipients: Recipients[T], data: bytes) -> list[tuple[T, int]]:
        """Send without waiting. Returns who did not take everything, with the number of bytes taken, or `UNKNOWN`."""
        recipients.are_to_get(data)
        requests, at_once = recipients.requests, self._size * _REQUEST.size
        answers = b"".join(
            [self._submit(requests[start : start + at_once]) for start in range(0, len(requests), at_once)]
        )
        results = memoryview(answers).cast("i")[2::4].tolist()
        if results.count(len(data)) == len(recipients):
            return []
        taken = dict.fromkeys(range(len(recipients)), UNKNOWN)
        taken.update((number, max(result, 0)) for number, result, _ in _ANSWER.iter_unpack(answers))
        return [(recipients[number], sent) for number, sent in taken.items() if sent != len(data)]

    def close(self) -> None:
        """No request may be made after this."""
        self.working = False
        self._words.release()
        self._shared.close()
        self._requests.close()
        os.close(self._ring)

    def _submit(self, requests: bytearray) -> bytes:
        """Submit requests, at most as many as fit in the ring. Returns the kernel's answers, in any order."""
        if not self.working:
            return b""
        words, count = self._words, len(requests) // _REQUEST.size
        tail = words[self._requests_tail]
        at = tail % self._size * _REQUEST.size
        until_end = len(self._requests) - at
        self._requests[at : at + len(requests[:until_end])] = requests[:until_end]
        self._requests[: len(requests[until_end:])] = requests[until_end:]
        words[self._requests_tail] = (tail + count) & _U32
        submitted = 0
        while submitted < count and self.working:
            submitted += self._enter(count - submitted, wait_for=0)
        head = words[self._answers_head]
        while (arrived := (words[self._answers_tail] - head) & _U32) < submitted and self.working:
            self._enter(0, wait_for=submitted - arrived)
        return self._take_answers(head, arrived)

    def _enter(self, count: int, *, wait_for: int) -> int:
        """Returns how many requests the kernel took."""
        flags = _GET_EVENTS if wait_for else 0
        done = int(self._system_call(_ENTER, self._ring, count, wait_for, flags, None, 0))
        if done > 0 or (done == 0 and not count):
            return done
        self.working = done < 0 and ctypes.get_errno() == errno.EINTR
        return 0

    def _take_answers(self, head: int, count: int) -> bytes:
        at = self._answers + head % self._answers_size * _ANSWER.size
        end = self._answers + self._answers_size * _ANSWER.size
        upto = at + count * _ANSWER.size
        answers = self._shared[at : min(upto, end)] + self._shared[self._answers : self._answers + max(upto - end, 0)]
        self._words[self._answers_head] = (head + count) & _U32
        return answers


def open_ring() -> SendRing | None:
    """None: io_uring is not available."""
    try:
        return SendRing()
    except (OSError, AttributeError, ValueError):
        return None
