"""Does together what many ask for at once: while one transaction is under way, the next one's share piles up."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Key, Item, Result]):
    """Runs `work(key, items)` for one batch of a key at a time; different keys do not wait for each other.

    The work goes on when a caller is cancelled: it is done for the others in the batch too.
    """

    def __init__(
        self,
        work: Callable[[Key, Sequence[Item]], Awaitable[Sequence[Result]]],
        weight: Callable[[Item], int],
        max_weight: int,
    ) -> None:
        self._work = work
        self._weight = weight
        self._max_weight = max_weight
        self._queues: dict[Key, deque[tuple[Item, asyncio.Future[Result]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, key: Key, item: Item) -> Result:
        """The result for `item`, once its batch is done; what the work raises reaches everyone of the batch."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque()
            task = asyncio.create_task(self._drain(key, queue))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        queue.append((item, future))
        return await future

    async def finish(self) -> None:
        """Wait until nothing is under way."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _drain(self, key: Key, queue: deque[tuple[Item, asyncio.Future[Result]]]) -> None:
        try:
            while queue:
                batch = self._take(queue)
                try:
                    results = await self._work(key, [item for item, _ in batch])
                except Exception as error:  # noqa: BLE001  whatever it is, the callers deal with it
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(error)
                else:
                    for (_, future), result in zip(batch, results, strict=True):
                        if not future.done():
                            future.set_result(result)
        finally:
            # No await between the last look at the queue and here: nobody can be left behind in it.
            del self._queues[key]

    def _take(self, queue: deque[tuple[Item, asyncio.Future[Result]]]) -> list[tuple[Item, asyncio.Future[Result]]]:
        batch = [queue.popleft()]
        weight = self._weight(batch[0][0])
        while queue and (weight := weight + self._weight(queue[0][0])) <= self._max_weight:
            batch.append(queue.popleft())
        return batch
