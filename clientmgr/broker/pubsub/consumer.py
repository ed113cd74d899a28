"""The loops of one `consume` call: several that pull, and one for the retries that wait in the database."""

import asyncio
import time
from collections.abc import Sequence

from clientmgr.base.errors import is_transient
from clientmgr.base.logs import get_logger
from clientmgr.base.waiting import unless_stopped, wait_for_stop
from clientmgr.broker.pubsub.client import RETRY_FOR_S
from clientmgr.broker.pubsub.handling import FIRST_PAUSE_S, Handling
from clientmgr.broker.pubsub.retries import handle_due
from clientmgr.broker.pubsub.wire import Delivery
from clientmgr.broker.settling import BURST_PATIENCE_S, pause_after_failure_s

log = get_logger(__name__)

PULL_WAIT_S = 30.0
LOOK_AGAIN_S = 0.05
LONGEST_PAUSE_S = 2.0
# When we have to stop while a pull waits, its answer may be on its way. If we dropped it, nobody would get its messages
# until their deadline. A pull without an answer by then is cancelled, and the server takes its messages back.
ANSWER_UNDER_WAY_S = 0.25


class FlowControl:
    """How much may be in hand at once, over all pulls of a `consume` call."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._messages = 0
        self._bytes = 0
        self._reserved = 0
        self._changed = asyncio.Condition()

    async def reserve(self, wanted: int) -> int:
        """Room for up to `wanted` messages; waits until there is some."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._messages + self._reserved < self._max_messages and self._bytes < self._max_bytes
            )
            room = min(wanted, self._max_messages - self._messages - self._reserved)
            self._reserved += room
            return room

    async def settle(self, room: int, deliveries: Sequence[Delivery], sign: int) -> None:
        """`deliveries` came in the room reserved for them (+1), or are out of our hands (-1)."""
        async with self._changed:
            self._reserved -= room
            self._messages += sign * len(deliveries)
            self._bytes += sign * sum(len(delivery.message.data) for delivery in deliveries)
            self._changed.notify_all()


class Consumer:
    """Run it once, with `run` or `run_burst`."""

    def __init__(self, handling: Handling, flow: FlowControl, stop: asyncio.Event, burst_quiet_s: float) -> None:
        self._handling = handling
        self._flow = flow
        self._stop = stop
        self._burst_quiet_s = burst_quiet_s
        self._in_hand = asyncio.Semaphore(handling.options.concurrency)

    async def run(self) -> None:
        """Until stopped. A cancellation gives back what is in hand."""
        async with asyncio.TaskGroup() as loops:
            for _ in range(self._handling.options.concurrency):
                loops.create_task(self._pull_until_stopped())
            loops.create_task(self._handle_retries_until_stopped())

    async def run_burst(self) -> None:
        """Until nothing comes for a moment and no retry is due within one."""
        while not self._stop.is_set():
            async with asyncio.TaskGroup() as loops:
                for _ in range(self._handling.options.concurrency):
                    loops.create_task(self._pull_until_quiet())
            if not await self._handle_retries_until_none_is_near():
                return

    async def _pull_until_stopped(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                deliveries = await self._pull(PULL_WAIT_S)
                failures = 0
                if deliveries:
                    await self._handle(deliveries)
            except Exception as error:
                if not is_transient(error):
                    raise
                failures += 1
                await self._pause(error, failures)

    async def _pull_until_quiet(self) -> None:
        give_up_at = time.monotonic() + RETRY_FOR_S
        last_news = time.monotonic()
        failures = 0
        while not self._stop.is_set():
            try:
                deliveries = await self._pull(0.0)
            except Exception as error:
                if not is_transient(error) or time.monotonic() > give_up_at:
                    raise
                failures += 1
                await self._pause(error, failures)
                continue
            if deliveries:
                await self._handle(deliveries)
                last_news = time.monotonic()
                give_up_at = last_news + RETRY_FOR_S
            elif time.monotonic() > max(last_news, self._handling.redelivery.expected_at) + self._burst_quiet_s:
                return
            else:
                await wait_for_stop(self._stop, LOOK_AGAIN_S)

    async def _pull(self, wait_s: float) -> list[Delivery]:
        """Messages, counted as in hand. After an order to stop, or an error, it gives back what came."""
        room = await unless_stopped(self._stop, self._flow.reserve(self._handling.options.batch_size))
        if room is None:
            return []
        deliveries: list[Delivery] = []
        kept = False
        try:
            pull = self._pull_once(room, wait_s)
            deliveries += await unless_stopped(self._stop, pull, finish_within_s=ANSWER_UNDER_WAY_S) or []
            await self._linger(deliveries, room)
            kept = not self._stop.is_set()
        finally:
            await self._flow.settle(room, deliveries if kept else [], +1)
            if deliveries and not kept:
                await asyncio.shield(self._handling.give_back(deliveries))
        return deliveries if kept else []

    async def _linger(self, deliveries: list[Delivery], room: int) -> None:
        """Add to `deliveries` what still comes in time. If the server goes away meanwhile, the wait ends early."""
        linger_until = time.monotonic() + self._handling.options.linger_ms / 1000
        while 0 < len(deliveries) < room and time.monotonic() < linger_until and not self._stop.is_set():
            await wait_for_stop(self._stop, min(LOOK_AGAIN_S, linger_until - time.monotonic()))
            pull = self._pull_once(room - len(deliveries), 0.0)
            try:
                deliveries += await unless_stopped(self._stop, pull, finish_within_s=ANSWER_UNDER_WAY_S) or []
            except Exception as error:
                if not is_transient(error):
                    raise
                # What is in hand is worth handling now: the next pull will see whether the server is back.
                log.warning(
                    "did not wait for more messages", subscription=self._handling.subscription, error=str(error)
                )
                return

    async def _pull_once(self, most: int, wait_s: float) -> list[Delivery]:
        client, subscription, topic = self._handling.client, self._handling.subscription, self._handling.topic
        if wait_s:
            return await client.pull(subscription, topic, most, wait_s)
        return await client.pull_now(subscription, topic, most)

    async def _handle(self, deliveries: list[Delivery]) -> None:
        try:
            async with self._in_hand:
                await self._handling.handle_pulled(deliveries)
        finally:
            await self._flow.settle(0, deliveries, -1)

    async def _handle_retries_until_stopped(self) -> None:
        wait_s = self._handling.options.wait_period_ms / 1000
        failures = 0
        while not self._stop.is_set():
            try:
                async with self._in_hand:
                    handled = await handle_due(self._handling)
                failures = 0
            except Exception as error:
                if not is_transient(error):
                    raise
                failures += 1
                await self._pause(error, failures)
                continue
            if not handled:
                due_s = await self._next_due_s()
                await wait_for_stop(self._stop, wait_s if due_s is None else min(wait_s, max(0.01, due_s)))

    async def _handle_retries_until_none_is_near(self) -> int:
        """How many were handled."""
        total = 0
        while not self._stop.is_set():
            handled = await handle_due(self._handling)
            total += handled
            if not handled:
                due_s = await self._next_due_s()
                if due_s is None or due_s > BURST_PATIENCE_S:
                    break
                await wait_for_stop(self._stop, max(0.005, due_s))
        return total

    async def _next_due_s(self) -> float | None:
        try:
            async with self._handling.pool.connection() as connection:
                return await self._handling.records.next_due_s(connection)
        except Exception as error:
            if not is_transient(error):
                raise
            return None

    async def _pause(self, error: Exception, failures: int) -> None:
        log.warning("trying again soon", subscription=self._handling.subscription, error=str(error))
        await wait_for_stop(
            self._stop, min(LONGEST_PAUSE_S, 0.05 + pause_after_failure_s(failures, first_s=FIRST_PAUSE_S))
        )
