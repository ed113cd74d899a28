"""Work for many callers done in shared batches."""

import asyncio
from collections.abc import Sequence

import pytest

from clientmgr.broker.batcher import Batcher

pytestmark = pytest.mark.anyio


class Work:
    """Doubles its items, one batch at a time, each when it is let through."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[int]]] = []
        self.go = asyncio.Event()

    async def __call__(self, key: str, items: Sequence[int]) -> list[int]:
        self.batches.append((key, list(items)))
        await self.go.wait()
        if 13 in items:
            raise ValueError("unlucky")
        return [item * 2 for item in items]


def batcher(work: Work, *, max_weight: int = 100, blame: bool = False, skip: bool = False) -> Batcher[str, int, int]:
    return Batcher(work, lambda _: 1, max_weight, one_is_to_blame=lambda _: blame, skip_abandoned=skip)


async def submitted(batches: Batcher[str, int, int], *items: int, key: str = "a") -> list[asyncio.Task[int]]:
    """Each item's caller, all of them waiting by now."""
    tasks = [asyncio.create_task(batches.submit(key, item)) for item in items]
    await asyncio.sleep(0.01)
    return tasks


async def test_who_comes_while_a_batch_is_under_way_shares_the_next() -> None:
    work = Work()
    batches = batcher(work)
    first = await submitted(batches, 1)
    others = await submitted(batches, 2, 3)
    work.go.set()
    assert await asyncio.gather(*first, *others) == [2, 4, 6]
    assert work.batches == [("a", [1]), ("a", [2, 3])]


async def test_a_batch_holds_what_its_weight_allows_and_at_least_one() -> None:
    work = Work()
    batches = batcher(work, max_weight=2)
    work.go.set()
    await asyncio.gather(*await submitted(batches, 1, 2, 3, 4, 5))
    assert [items for _, items in work.batches] == [[1, 2], [3, 4], [5]]
    heavy = Batcher(work, lambda item: item, 2)
    assert await asyncio.gather(*[asyncio.create_task(heavy.submit("a", item)) for item in (9, 9)]) == [18, 18]


async def test_keys_do_not_wait_for_each_other() -> None:
    work = Work()
    batches = batcher(work)
    await submitted(batches, 1)
    await submitted(batches, 2, key="b")
    assert work.batches == [("a", [1]), ("b", [2])]
    work.go.set()
    await batches.finish()


async def test_an_error_reaches_everyone_of_the_batch() -> None:
    work = Work()
    work.go.set()
    results = await asyncio.gather(*await submitted(batcher(work), 12, 13), return_exceptions=True)
    assert [type(result) for result in results] == [ValueError, ValueError]


async def test_where_one_item_is_to_blame_the_others_succeed_without_it() -> None:
    work = Work()
    work.go.set()
    results = await asyncio.gather(*await submitted(batcher(work, blame=True), 12, 13, 14), return_exceptions=True)
    assert (results[0], type(results[1]), results[2]) == (24, ValueError, 28)
    assert [items for _, items in work.batches] == [[12, 13, 14], [12], [13], [14]]


@pytest.mark.parametrize(("skip", "done"), [(True, [[1], [3]]), (False, [[1], [2, 3]])])
async def test_what_a_cancelled_caller_left_is_skipped_only_on_request(skip: bool, done: list[list[int]]) -> None:
    work = Work()
    batches = batcher(work, skip=skip)
    await submitted(batches, 1)
    given_up, other = await submitted(batches, 2, 3)
    given_up.cancel()
    await asyncio.sleep(0)
    work.go.set()
    assert await other == 6
    assert [items for _, items in work.batches] == done


async def test_a_cancelled_caller_does_not_end_the_batch_of_the_others() -> None:
    work = Work()
    batches = batcher(work)
    gone, other = await submitted(batches, 1, 2)
    gone.cancel()
    await asyncio.sleep(0)
    work.go.set()
    assert await other == 4
    await batches.finish()
