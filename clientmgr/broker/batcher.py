"""Does together what many ask for at once: while one transaction is under way, the items of the next one pile up."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeAlias, TypeVar

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Result = TypeVar("Result")

_Waiting: TypeAlias = tuple[Item, asyncio.Future[Result]]


class Batcher(Generic[Key, Item, Result]):
    """Runs `work(key, items)` for one batch of a key at a time; different keys do not wait for each other.

    `weight`, `max_weight`: a batch holds items of this weight at most, but always one. `one_is_to_blame`: whether an
    error may be the fault of a single item; then each is tried again alone, and only that one's caller gets the error.
    `skip_abandoned`: leave out items whose callers were cancelled before their batch began. Once a batch has begun, it
    goes on when a caller is cancelled: it is done for the others too.
    """

    def __init__(
        self,
        work: Callable[[Key, Sequence[Item]], Awaitable[Sequence[Result]]],
        weight: Callable[[Item], int],
        max_weight: int,
        *,
        one_is_to_blame: Callable[[Exception], bool] = lambda _: False,
        skip_abandoned: bool = False,
    ) -> None:
        self._work = work
        self._weight = weight
        self._max_weight = max_weight
        self._one_is_to_blame = one_is_to_blame
        self._skip_abandoned = skip_abandoned
        self._queues: dict[Key, deque[_Waiting[Item, Result]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, key: Key, item: Item) -> Result:
        """The result for `item`, once its batch is done. An error of the work reaches every caller of the batch."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque()
            task = asyncio.create_task(self._drain(key, queue))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        queue.append((item, future))
        try:
            return await future
        finally:
            # An error's traceback has this frame: with the future in it they, and all items, would keep each other.
            del future, queue

    async def finish(self) -> None:
        """Wait until nothing is under way."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _drain(self, key: Key, queue: deque[_Waiting[Item, Result]]) -> None:
        try:
            while queue:
                batch = self._take(queue)
                if batch:
                    await self._run(key, batch)
        finally:
            # No await between the last look at the queue and here: nobody can be left behind in it.
            del self._queues[key]

    async def _run(self, key: Key, batch: Sequence[_Waiting[Item, Result]]) -> None:
        try:
            results = await self._work(key, [item for item, _ in batch])
        except Exception as error:  # noqa: BLE001  whatever it is, the callers deal with it
            if len(batch) > 1 and self._one_is_to_blame(error):
                for one in batch:
                    await self._run(key, [one])
                return
            _fail([future for _, future in batch], error)
            del batch
            return
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():
                future.set_result(result)

    def _take(self, queue: deque[_Waiting[Item, Result]]) -> list[_Waiting[Item, Result]]:
        batch: list[_Waiting[Item, Result]] = []
        weight = 0
        while queue:
            item, future = queue[0]
            if self._skip_abandoned and future.done():
                queue.popleft()
                continue
            weight += self._weight(item)
            if batch and weight > self._max_weight:
                break
            batch.append(queue.popleft())
        return batch


def _fail(futures: Sequence[asyncio.Future[Result]], error: Exception) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)
