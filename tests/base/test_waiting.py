"""Waiting that ends when an order to stop comes."""

import asyncio
import time

import pytest

from clientmgr.base.waiting import unless_stopped, wait_for_stop

pytestmark = pytest.mark.anyio


async def test_a_wait_lasts_its_time_while_nobody_says_stop() -> None:
    begun = time.monotonic()
    assert not await wait_for_stop(asyncio.Event(), 0.05)
    assert time.monotonic() - begun >= 0.045


async def test_an_order_to_stop_ends_a_wait() -> None:
    stop = asyncio.Event()
    waiting = asyncio.create_task(wait_for_stop(stop, 60.0))
    await asyncio.sleep(0)
    stop.set()
    assert await asyncio.wait_for(waiting, 5)


async def test_work_that_ends_before_the_order_gives_its_result() -> None:
    assert await unless_stopped(asyncio.Event(), asyncio.sleep(0, "result")) == "result"


async def test_work_that_fails_raises_its_own_error() -> None:
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await unless_stopped(asyncio.Event(), fail())


async def test_an_order_to_stop_calls_work_off() -> None:
    stop = asyncio.Event()
    called_off = asyncio.Event()

    async def work() -> str:
        stop.set()
        try:
            return await asyncio.sleep(60, "too late")
        except asyncio.CancelledError:
            called_off.set()
            raise

    assert await asyncio.wait_for(unless_stopped(stop, work()), 5) is None
    assert called_off.is_set()


async def test_work_may_finish_shortly_after_the_order() -> None:
    stop = asyncio.Event()

    async def work() -> str:
        stop.set()
        return await asyncio.sleep(0.02, "just in time")

    assert await unless_stopped(stop, work(), finish_within_s=5.0) == "just in time"


async def test_whoever_is_cancelled_takes_the_work_along() -> None:
    begun, called_off = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            called_off.set()

    waiting = asyncio.create_task(unless_stopped(asyncio.Event(), work()))
    await begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.wait_for(called_off.wait(), 5)
