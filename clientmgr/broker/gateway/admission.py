"""How many bytes the gateway holds at once, of one client and in all: who comes when it is full waits.

A request takes the place of the largest one before its body is read, and keeps that of its real size. Until then
HTTP/2 leaves the body with the client, but for one window.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator

from clientmgr.broker.gateway.refusals import exhausted

MOST_WAITING = 1000
MOST_WAITING_A_CLIENT = 200
WAIT_S = 30.0


class HeldBytes:
    """How many bytes are held, of each client and in all, and how many may be."""

    def __init__(self, most: int, most_a_client: int) -> None:
        self.most = most
        self.most_a_client = most_a_client
        self.in_all = 0
        self._by_client: dict[str, int] = {}

    def of(self, client: str) -> int:
        return self._by_client.get(client, 0)

    def add(self, client: str, size: int) -> None:
        self.in_all += size
        self._by_client[client] = self.of(client) + size

    def remove(self, client: str, size: int) -> None:
        self.in_all -= size
        self._by_client[client] -= size
        if not self._by_client[client]:
            del self._by_client[client]


class Place:
    """Bytes that are taken until the call ends."""

    __slots__ = ("_admission", "_client", "size")

    def __init__(self, admission: "Admission", client: str, size: int) -> None:
        self._admission = admission
        self._client = client
        self.size = size

    def shrink(self, size: int) -> None:
        """It turned out smaller."""
        if size < self.size:
            self._admission.give_back(self._client, self.size - size)
            self.size = size


class Admission:
    def __init__(self, most: int, most_a_client: int) -> None:
        self._held = HeldBytes(most, most_a_client)
        self._waiting: deque[tuple[str, int, asyncio.Future[None]]] = deque()
        self._waiting_of: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def place(self, client: str, size: int) -> AsyncIterator[Place]:
        """A place for `size` bytes, waited for if need be. RESOURCE_EXHAUSTED: it took too long, or too many wait."""
        if not self._take(client, size):
            await self._wait(client, size)
        place = Place(self, client, size)
        try:
            yield place
        finally:
            self.give_back(client, place.size)

    def give_back(self, client: str, size: int) -> None:
        self._held.remove(client, size)
        if self._waiting:
            self._admit()

    def _take(self, client: str, size: int) -> bool:
        held = self._held
        by_client = held.of(client)
        # One alone always fits, or a request larger than the limit would wait for ever.
        if (held.in_all and held.in_all + size > held.most) or (by_client and by_client + size > held.most_a_client):
            return False
        held.add(client, size)
        return True

    async def _wait(self, client: str, size: int) -> None:
        of_client = self._waiting_of.get(client, 0)
        if len(self._waiting) >= MOST_WAITING or of_client >= MOST_WAITING_A_CLIENT:
            raise exhausted("Too many calls wait for their turn at the gateway; please try again later.")
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = (client, size, admitted)
        self._waiting.append(waiting)
        self._waiting_of[client] = of_client + 1
        try:
            async with asyncio.timeout(WAIT_S):
                await admitted
        except BaseException as error:
            if admitted.done() and not admitted.cancelled():
                self.give_back(client, size)  # it was let in just as it gave up
            if isinstance(error, TimeoutError):
                raise exhausted("The gateway holds as many bytes as it may; please try again later.") from None
            raise
        finally:
            self._waiting_of[client] -= 1
            if not self._waiting_of[client]:
                del self._waiting_of[client]
            if admitted.cancelled():
                with contextlib.suppress(ValueError):
                    self._waiting.remove(waiting)

    def _admit(self) -> None:
        """In their order, those who fit now. Who waits for its own client's bytes does not hold up others."""
        still: deque[tuple[str, int, asyncio.Future[None]]] = deque()
        while self._waiting:
            client, size, admitted = self._waiting.popleft()
            if admitted.done():
                continue
            if self._take(client, size):
                admitted.set_result(None)
            else:
                still.append((client, size, admitted))
        self._waiting = still
