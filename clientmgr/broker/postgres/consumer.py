"""One consumer: a connection, a batch in hand, and the loop that claims, handles and settles until it has to stop.

Claim, handler, published messages and offset are one transaction: whatever happens to us, all of it or nothing did.
"""

import math
import random
import time
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import tuple_row

from clientmgr.base.database import CONNECTION_LIFETIME_S
from clientmgr.base.errors import ErrorKind, is_transient
from clientmgr.base.logs import get_logger
from clientmgr.base.waiting import wait_for_stop
from clientmgr.broker.postgres.attempts import Failure
from clientmgr.broker.postgres.batch_sizes import BatchSize
from clientmgr.broker.postgres.claim import QUERIES, Claim, Record, quoted, read_claim, send_claim
from clientmgr.broker.postgres.consumption import Consumption, reconnect_pause_s
from clientmgr.broker.postgres.fallback import take_apart
from clientmgr.broker.postgres.held import try_queues
from clientmgr.broker.postgres.lease import kept_lease
from clientmgr.broker.postgres.publish import append_to_topics
from clientmgr.broker.postgres.settlement import send_advance, send_hold, send_postpone, send_settlement
from clientmgr.broker.settling import (
    BURST_PATIENCE_S,
    Handled,
    Settlement,
    TransactionEndedError,
    pause_after_failure_s,
)

log = get_logger(__name__)

# Retries that are put back into the log at a time.
REQUEUE_AT_MOST = 500
SHORTEST_SLEEP_S = 0.005
IDLE_FACTOR = 100
"""How far the wait between two looks grows while nothing comes and notifications would tell.

They are never lost while their connection lives.
"""
BEHIND_FACTOR = 10
"""The same while the subscription is not read to its end: of others who die with work in hand nobody is notified."""
# The part of a loop's time that may go into retries that fail, while there is something else to read.
FAILING_SHARE = 0.1
# Held queues whose attempts could not even be recorded.
QUEUES_REST_S = 1.0
NOTHING: Handled[Record] = Handled(Settlement())
# Nothing is locked or written then. After a ROLLBACK psycopg would forget all statements that it has prepared.
NOTHING_CLAIMED = "COMMIT"


class Consumer:
    """Run it once with `run()`. It raises only for what no retry can mend, like a missing table."""

    def __init__(self, context: Consumption) -> None:
        self._context = context
        self._subscription = context.subscription
        self._bell = context.bell
        self._options = context.options
        self._batch_size = BatchSize(self._options.batch_size, self._options.largest_batch_size)
        # How many messages the last look asked for.
        self._asked_for = self._options.batch_size
        # Where to start looking; from there the partitions take turns.
        self._last_partition = random.randrange(1024)  # noqa: S311
        # When to look for due retries and rested partitions, if nobody wakes us before.
        self._next_look_at = 0.0
        self._idle_looks = 0
        self._seen_due_news = -1
        # The news when we last looked at all partitions, and whether that look showed that nothing else waits.
        self._seen_news = -1
        self._exhausted = False
        # Held queues and the log take turns: neither may keep the other waiting.
        self._held_first = True
        # Retries have failed for so long that the log has the time until then, unless it is read to its end.
        self._held_next_at = 0.0
        self._failure_to_note: Claim | None = None
        self._failed_connections = 0

    async def run(self) -> None:
        while not self._context.stop.is_set():
            connection: AsyncConnection[Any] | None = None
            try:
                connection = await self._context.connect()
                if await self._work(connection):
                    return
            except Exception as error:
                lost = connection is not None and connection.closed
                if not lost and not is_transient(error):
                    raise
                await self._pause(error)
            finally:
                self._context.awake.discard(self)
                if connection is not None:
                    await connection.close()

    async def _work(self, connection: AsyncConnection[Any]) -> bool:
        """Handle batches until there is no more to do (True) or the connection is old enough to be renewed (False)."""
        opened = time.monotonic()
        self._exhausted = False
        if self._failure_to_note is not None:
            await self._postpone(connection, self._failure_to_note)
        claim: Claim | None = None
        while not self._context.stop.is_set():
            if claim is None:
                if time.monotonic() - opened > CONNECTION_LIFETIME_S:
                    return False
                claim = await self._find_work(connection)
                if claim is None:
                    return True
            self._last_partition = claim.partition_id
            if claim.more_elsewhere:
                self._bell.wake_one()
            claim = await self._handle(connection, claim)
            self._failed_connections = 0
        return True

    async def _find_work(self, connection: AsyncConnection[Any]) -> Claim | None:
        """The next claim; waits for it if need be. None: we have to stop, or in burst mode nothing is left."""
        while not self._context.stop.is_set():
            if self._exhausted:
                self._context.awake.discard(self)
                await self._bell.sleep(self._seen_news, self._next_look_at - time.monotonic())
                self._exhausted = False
                continue
            self._context.awake.add(self)
            due_s = math.inf
            is_time = time.monotonic() >= self._next_look_at or self._bell.due_news != self._seen_due_news
            if self._context.burst or is_time:
                due_s = await self._requeue_due(connection)
            others = self._context.awake - {self}
            cursor = await self._send_claim(connection, begin=True)
            claim = await read_claim(cursor, self._subscription.topic)
            if claim is not None:
                self._idle_looks = 0
                return claim
            await self._end_look(connection)
            # What rested when we looked for it before may have rested for long enough by the time that we look again,
            # and would not show then: nothing is left only if both say so.
            if self._context.burst and min(due_s, await self._requeue_due(connection)) > BURST_PATIENCE_S:
                return None
            # What woke us may have come to a partition that another of us has just claimed: that one has to look again.
            # If it has let the partition go meanwhile without seeing the message, we have to.
            if others <= self._context.awake:
                self._exhausted = True
                if others:
                    self._seen_news = self._bell.leave_to_the_busy()
        return None

    async def _requeue_due(self, connection: AsyncConnection[Any]) -> float:
        """Put due retries back into the log. Returns the seconds until more are due."""
        self._seen_due_news = self._bell.due_news
        group = {"group_id": self._subscription.group_id, "topic_id": self._subscription.topic_id}
        cursor = connection.cursor(row_factory=tuple_row)
        await cursor.execute(
            QUERIES["requeue_due"], group | {"topic": self._subscription.topic, "most": REQUEUE_AT_MOST}
        )
        requeued, next_due_s, next_retry_s = await anext(cursor)
        if requeued:
            self._next_look_at = 0.0
            self._idle_looks = 0
            return 0.0
        due_s = min((max(s, SHORTEST_SLEEP_S) for s in (next_due_s, next_retry_s) if s is not None), default=math.inf)
        self._next_look_at = time.monotonic() + min(due_s, self._longest_wait_s())
        return due_s

    def _longest_wait_s(self) -> float:
        """Until the next look that nobody asked for. The loops of one call share the looks of an idle subscription."""
        wait_s = self._options.wait_period_ms / 1000
        if not self._context.wakeups.listening:
            self._idle_looks = 0
            return wait_s
        self._idle_looks += 1
        return wait_s * min(1 << min(self._idle_looks, 10), IDLE_FACTOR * self._options.concurrency)

    async def _end_look(self, connection: AsyncConnection[Any]) -> None:
        """End the transaction of a look that found nothing. What others have in hand may yet be ours to do."""
        soon = time.monotonic() + self._options.wait_period_ms / 1000 * BEHIND_FACTOR
        if self._next_look_at <= soon:
            await connection.execute(NOTHING_CLAIMED)
            return
        only = self._options.partition_id
        cursor = connection.cursor(row_factory=tuple_row)
        await cursor.execute(
            f"{NOTHING_CLAIMED}; SELECT clientmgr.is_behind({quoted(self._subscription.group_id)},"
            f" {self._subscription.topic_id}, {'NULL' if only is None else only})".encode()
        )
        cursor.nextset()
        if await cursor.fetchone() == (True,):
            self._next_look_at = soon

    async def _send_claim(
        self, connection: AsyncConnection[Any], only_partition: int | None = None, *, begin: bool = False
    ) -> AsyncCursor[tuple[Any, ...]]:
        if only_partition is None:
            self._seen_news = self._bell.news
        self._asked_for = self._batch_size.current
        return await send_claim(
            connection,
            self._subscription,
            batch_size=self._asked_for,
            only_partition=self._options.partition_id if only_partition is None else only_partition,
            after_partition=self._last_partition,
            in_hand=self._context.in_hand,
            held_first=self._held_first and only_partition is None and time.monotonic() >= self._held_next_at,
            begin=begin,
        )

    async def _linger(self, connection: AsyncConnection[Any], claim: Claim) -> Claim:
        """Give the batch time to fill up. The partition is ours already; looking again shows what has come since.

        The time counts from when its first message was published: while we wait for one partition the others' time runs
        too. Otherwise sixteen partitions would take sixteen waits.
        """
        linger_s = self._options.linger_ms / 1000
        waited_s = time.time() - claim.messages[0].published_at.timestamp() if claim.records else linger_s
        deadline = time.monotonic() + min(linger_s, linger_s - waited_s)
        while len(claim.records) < self._options.batch_size and not self._context.stop.is_set():
            seconds = deadline - time.monotonic()
            if seconds <= 0.0:
                break
            await self._bell.sleep(self._bell.news, seconds)
            cursor = await self._send_claim(connection, claim.partition_id)
            claim = await read_claim(cursor, self._subscription.topic) or claim
        return claim

    async def _handle(self, connection: AsyncConnection[Any], claim: Claim) -> Claim | None:
        """Handle and settle one claim. Returns the next one, if any, which came with the answer to the COMMIT."""
        in_hand = self._context.in_hand
        in_hand.add(claim.partition_id)
        try:
            async with kept_lease(connection, self._context.lease_s):
                if self._options.linger_ms and not claim.queues and len(claim.records) < self._options.batch_size:
                    claim = await self._linger(connection, claim)
                return await self._handle_in_hand(connection, claim)
        finally:
            in_hand.discard(claim.partition_id)

    async def _handle_in_hand(self, connection: AsyncConnection[Any], claim: Claim) -> Claim | None:
        started = time.monotonic()
        self._held_first = not claim.queues
        try:
            if claim.queues:
                self._exhausted, self._next_look_at = False, 0.0
                failing_s = await try_queues(self._context, connection, claim)
                self._held_next_at = time.monotonic() + failing_s * (1 / FAILING_SHARE - 1)
                return None
            handled = await self._context.handle(connection, claim) if claim.records else NOTHING
            self._batch_size.note(claim.rows, time.monotonic() - started)
            next_claim = await self._settle(connection, claim, handled)
        except TransactionEndedError:
            raise
        except Exception as error:  # noqa: BLE001  (whatever a handler throws is judged in one place)
            await self._fail(connection, claim, error)
            return None
        if claim.records:
            self._context.count(handled, started)
        self._context.ledger.put_off(len(claim.behind))
        return next_claim

    async def _settle(self, connection: AsyncConnection[Any], claim: Claim, handled: Handled[Record]) -> Claim | None:
        delay_s = handled.settlement.shortest_delay_s
        if delay_s is not None:
            self._next_look_at = min(self._next_look_at, time.monotonic() + delay_s)
        self._exhausted = self._took_the_last(claim)
        claim_next = not self._context.stop.is_set() and not self._exhausted and time.monotonic() < self._next_look_at
        await send_settlement(connection, self._subscription, handled.settlement)
        await send_hold(connection, self._subscription, claim.partition_id, claim.behind)
        await append_to_topics(connection, handled.publications, cut_off_ms=self._context.cut_off_ms)
        await send_advance(
            connection, self._subscription, claim, claim.last_offset + 1, "COMMIT; BEGIN" if claim_next else "COMMIT"
        )
        if not claim_next:
            return None
        self._context.in_hand.discard(claim.partition_id)  # so that the next look sees what has come to it
        cursor = await self._send_claim(connection)
        next_claim = await read_claim(cursor, self._subscription.topic)
        if next_claim is None:
            await connection.execute(NOTHING_CLAIMED)
        return next_claim

    def _took_the_last(self, claim: Claim) -> bool:
        """Whether all that was there when we looked is in hand, so that only a notification can mean more.

        In burst mode, and without a connection that listens, none would come.
        """
        return (
            self._context.wakeups.listening
            and not self._context.burst
            and not claim.more_elsewhere
            and claim.rows < self._asked_for
            and self._bell.news == self._seen_news
        )

    async def _fail(self, connection: AsyncConnection[Any], claim: Claim, error: Exception) -> None:
        self._next_look_at = 0.0
        self._batch_size.reset()
        failure = Failure(error, self._context.judge(error, claim))
        waits = failure.kind is ErrorKind.TRANSIENT
        self._failure_to_note = claim if waits and not claim.queues else None
        if connection.closed:
            log.warning(
                "claim lost: the session has ended, and nothing of the batch was committed; it comes again",
                subscription=self._subscription.group_id,
                topic=self._subscription.topic,
                partition=claim.partition_id,
                first_offset=claim.first_offset,
                lease_s=self._context.lease_s,
            )
        await self._roll_back(connection)
        if claim.queues:
            await connection.execute(QUERIES["rest_queues"], {"queues": list(claim.queues), "delay_s": QUEUES_REST_S})
        elif waits:
            await self._postpone(connection, claim)
        else:
            await take_apart(self._context, connection, claim, failure)

    async def _postpone(self, connection: AsyncConnection[Any], claim: Claim) -> None:
        await send_postpone(connection, self._subscription, claim, pause_after_failure_s(claim.failures + 1))
        self._failure_to_note = None

    @staticmethod
    async def _roll_back(connection: AsyncConnection[Any]) -> None:
        try:
            await connection.rollback()
        except psycopg.Error:
            # Its state is unknown: close it, and the server rolls back by itself.
            await connection.close()
            raise

    async def _pause(self, error: Exception) -> None:
        pause_s = reconnect_pause_s(self._failed_connections)
        self._failed_connections += 1
        log.warning(
            "connection lost, trying again",
            subscription=self._subscription.group_id,
            error_type=type(error).__name__,
            error=str(error).strip(),
            pause_s=round(pause_s, 3),
        )
        await wait_for_stop(self._context.stop, pause_s)
