"""Messages on their way to clients: how many bytes, to one client and to all.

What a client does not read stays in the gateway's memory, and gRPC takes nothing back. So nothing more is claimed for a
client, or for all, while that many bytes are under way; and if others wait for room, whoever has let an answer lie for
`UNREAD_S` loses its connection, which frees it. While there is room, a client may take as long as it likes.
"""

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from clientmgr.base.logs import get_logger
from clientmgr.broker.gateway.admission import HeldBytes
from clientmgr.broker.gateway.connections import end_connection
from clientmgr.broker.gateway.signals import Signal

log = get_logger(__name__)

UNREAD_S = 30.0
LOOK_AGAIN_S = 1.0
# A claim's size is known only afterwards, so that all that are made at once may go beyond the limit.
CLAIMS_AT_ONCE = 6


class Answer:
    """Bytes that are under way to a client until `leave` is called, or the end of `with`."""

    def __init__(self, answers: "Answers", client: str, peer: str, size: int) -> None:
        self._answers = answers
        self.client = client
        self.peer = peer
        self.size = size
        self._since = time.monotonic()
        self._when_left: list[Callable[[], object]] = []

    @property
    def is_overdue(self) -> bool:
        """Its client has let it lie for so long that others may have its room."""
        return time.monotonic() - self._since > UNREAD_S

    def when_left(self, tell: Callable[[], object]) -> None:
        self._when_left.append(tell)

    def leave(self) -> None:
        """It was sent, or its client is gone. Safe to call again."""
        self._answers.remove(self)
        while self._when_left:
            self._when_left.pop()()

    def leave_with(self, context: Any) -> None:
        """At the end of the call."""
        context.add_done_callback(lambda _context: self.leave())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()


class Answers:
    def __init__(self, most: int, most_a_client: int, end: Callable[[str], bool] = end_connection) -> None:
        self._held = HeldBytes(most, most_a_client)
        self._end = end
        self._under_way: dict[Answer, None] = {}
        self._turned_away = False
        self.claiming = asyncio.Semaphore(CLAIMS_AT_ONCE)
        self.room = Signal()
        """Told when it is time for those who found no room to look again."""

    def has_room(self, client: str) -> bool:
        """Whether something may be claimed for it. If not, look again at the next `room`."""
        if self._held.in_all < self._held.most and self._held.of(client) < self._held.most_a_client:
            return True
        self._end_those_who_do_not_read(client)
        if not self._turned_away:
            self._turned_away = True
            asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._tell_of_room)
        return False

    def add(self, client: str, peer: str, size: int) -> Answer:
        answer = Answer(self, client, peer, size)
        self._under_way[answer] = None
        self._held.add(client, size)
        return answer

    def remove(self, answer: Answer) -> None:
        if answer not in self._under_way:
            return
        del self._under_way[answer]
        self._held.remove(answer.client, answer.size)
        self._tell_of_room()

    def _tell_of_room(self) -> None:
        if self._turned_away:
            self._turned_away = False
            self.room.notify()

    def _end_those_who_do_not_read(self, client: str) -> None:
        """All of them if all is full, else those of this client."""
        all_is_full = self._held.in_all >= self._held.most
        unread = {a.peer: a for a in self._under_way if a.is_overdue and (all_is_full or a.client == client)}
        for peer, answer in unread.items():
            if self._end(peer):
                log.warning("a client did not read: its connection is ended", client=answer.client, bytes=answer.size)
