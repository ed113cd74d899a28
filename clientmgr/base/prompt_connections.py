"""A connection that goes to the event loop only for what it must really wait for.

In a pipeline psycopg waits twice for every statement until the socket takes it, which it nearly always does at once.
By way of the event loop each wait is a round of the loop, a timer, and two changes of what is watched.
"""

import select
from typing import Any, Final, TypeVar

from psycopg import AsyncConnection
from psycopg.abc import PQGen
from psycopg.waiting import Ready

# Plain numbers, which psycopg's are too: enums would be most of the time here.
_R, _W = int(Ready.R), int(Ready.W)
_EVENTS: Final = {_R: select.POLLIN, _W: select.POLLOUT, _R | _W: select.POLLIN | select.POLLOUT}
_READY: Final = {events: ready for ready, events in _EVENTS.items()}

Answer = TypeVar("Answer")


class PromptConnection(AsyncConnection[Any]):
    """In all else psycopg's own."""

    async def wait(self, gen: PQGen[Answer], *args: Any, **options: Any) -> Answer:
        return await super().wait(_answered_at_once(gen, self.pgconn.socket), *args, **options)


def _answered_at_once(waits: PQGen[Answer], socket: int) -> PQGen[Answer]:
    """Of its waits only those for what is not ready yet."""
    try:
        wanted = next(waits)
        poll = select.poll()
        while True:
            ready = _ready(poll, socket, wanted) or (yield wanted)
            wanted = waits.send(ready)
    except StopIteration as end:
        answer: Answer = end.value
        return answer


def _ready(poll: select.poll, socket: int, wanted: int) -> int:
    """Which of `wanted` would not block, without waiting for it."""
    poll.register(socket, _EVENTS[wanted])
    found = poll.poll(0)
    # A lost connection has other events: whoever reads or writes is told.
    return _READY.get(found[0][1], wanted) if found else 0
