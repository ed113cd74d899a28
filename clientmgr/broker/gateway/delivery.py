"""Claims messages of a subscription for a client and puts them into the wire format."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Coroutine, Sequence
from datetime import timedelta
from typing import Any

from clientmgr.base.errors import is_transient
from clientmgr.base.logs import get_logger
from clientmgr.broker.gateway.answers import Answer, Answers
from clientmgr.broker.gateway.callers import tenants_of
from clientmgr.broker.gateway.configuration import SubscriptionRow
from clientmgr.broker.gateway.dead_letters import DeadLetters
from clientmgr.broker.gateway.leases import AckId, Deadline, LeasedMessage, Leases
from clientmgr.broker.gateway.protos import Proto
from clientmgr.broker.gateway.refusals import Refusal
from clientmgr.broker.gateway.rpc import Call
from clientmgr.broker.pubsub.wire import KEY_ATTRIBUTE

log = get_logger(__name__)

# What goes into one response. Google's own responses stay below 10 MB, and clients are built for that.
MAX_RESPONSE_BYTES = 4_000_000
MAX_RESPONSE_MESSAGES = 1000
# The part of a lease that may pass before its message is with the client.
LATE = 0.1
RENEWALS_A_LEASE = 3


class Delivery:
    """Claims messages so that a client that ends suddenly does not keep them from others."""

    def __init__(self, leases: Leases, dead_letters: DeadLetters, answers: Answers) -> None:
        self.answers = answers
        self._leases = leases
        self._dead_letters = dead_letters
        self._tasks: set[asyncio.Task[Any]] = set()

    async def take(
        self,
        call: Call,
        subscription: SubscriptionRow,
        wanted: int,
        max_bytes: int,
        lease_time: timedelta | None = None,
    ) -> tuple[list[LeasedMessage], Answer] | None:
        """Claim what is due now, if anything is and there is room for it on the way to the client.

        The answer is the caller's to leave. If it is cancelled meanwhile, what was claimed is given back.
        """
        claiming = asyncio.create_task(self._claim_in_turn(call, subscription, wanted, max_bytes, lease_time))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            self.in_background(self._give_back(subscription, claiming))
            raise

    async def give_back(self, subscription: str, held: list[AckId]) -> None:
        """Release leases. If the database does not answer, they end with their deadlines."""
        await self._unless_gone(subscription, self._leases.release(subscription, held))

    def count_from_now(self, subscription: str, sent: Sequence[AckId], lease_time: timedelta, since: float) -> None:
        """Give clients their whole time: if a claim and the way to its client took long, the leases begin anew."""
        seconds = lease_time.total_seconds()
        if time.monotonic() - since > seconds * LATE:
            deadlines = [Deadline(ack_id, round(seconds)) for ack_id in sent]
            self.in_background(
                self._unless_gone(subscription, self._leases.modify(subscription, deadlines, received_at=since))
            )

    async def _unless_gone(self, subscription: str, change: Awaitable[object]) -> None:
        try:
            await change
        except Refusal:
            return  # the subscription is gone, and its leases with it
        except Exception as error:
            if not is_transient(error):
                raise
            log.warning("leases could not be changed; they will expire", subscription=subscription, error=str(error))

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Finish `work` even if the call that started it is cancelled."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Wait until everything has been given back."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _claim_in_turn(
        self, call: Call, subscription: SubscriptionRow, wanted: int, max_bytes: int, lease_time: timedelta | None
    ) -> tuple[list[LeasedMessage], Answer] | None:
        client, since = call.caller.client, time.monotonic()
        async with self.answers.claiming:
            if not self.answers.has_room(client):
                return None
            messages = await self._claim(subscription, wanted, max_bytes, lease_time)
            if not messages:
                return None
            # Counted within the turn, so that the next one sees it.
            answer = self.answers.add(client, call.peer, sum(len(m.data) for m in messages))
            sent = [message.ack_id for message in messages]
            renewing = self._renew(subscription.name, sent, lease_time or subscription.ack_deadline, answer, since)
            answer.when_left(asyncio.create_task(renewing).cancel)
            return messages, answer

    async def _renew(
        self, subscription: str, sent: Sequence[AckId], lease_time: timedelta, answer: Answer, since: float
    ) -> None:
        """Keep leases while their messages are on the way: a client can't ask for more time for what it has not got.

        Otherwise what a slow client has not read yet would be claimed for it again, and wait behind itself.
        """
        seconds = lease_time.total_seconds()
        deadlines = [Deadline(ack_id, round(seconds)) for ack_id in sent]
        while not answer.is_overdue:
            await asyncio.sleep(since + seconds / RENEWALS_A_LEASE - time.monotonic())
            # Counts from when they were last held: a machine that wakes us too late has not let them go.
            renewed_at = time.monotonic()
            await self._unless_gone(subscription, self._leases.modify(subscription, deadlines, received_at=since))
            since = renewed_at

    async def _claim(
        self, subscription: SubscriptionRow, wanted: int, max_bytes: int, lease_time: timedelta | None
    ) -> list[LeasedMessage]:
        attempt_limit = await self._dead_letters.forward(subscription)
        messages = await self._leases.claim(
            subscription,
            wanted=min(wanted, MAX_RESPONSE_MESSAGES),
            max_bytes=min(max_bytes, MAX_RESPONSE_BYTES),
            lease_time=lease_time,
            attempt_limit=attempt_limit,
        )
        return messages if subscription.tenants is None else await self._of_its_customers(subscription, messages)

    async def _of_its_customers(
        self, subscription: SubscriptionRow, messages: list[LeasedMessage]
    ) -> list[LeasedMessage]:
        """The database went by the ordering key. What names another customer in its JSON is passed over."""
        own = {*(subscription.tenants or ())}
        foreign = [m for m in messages if not tenants_of(m.ordering_key, m.data) <= own]
        if not foreign:
            return messages
        await self._leases.acknowledge(subscription.name, [message.ack_id for message in foreign])
        passed_over = {message.ack_id for message in foreign}
        return [message for message in messages if message.ack_id not in passed_over]

    async def _give_back(
        self, subscription: SubscriptionRow, claiming: asyncio.Task[tuple[list[LeasedMessage], Answer] | None]
    ) -> None:
        with contextlib.suppress(Exception):  # a claim that failed has nothing to give back
            claimed = await claiming
            if claimed is not None:
                messages, answer = claimed
                answer.leave()
                await self.give_back(subscription.name, [message.ack_id for message in messages])


def add_received(target: Proto, subscription: SubscriptionRow, messages: Sequence[LeasedMessage]) -> None:
    """Add them to a response's `received_messages`, as they go over the wire.

    Filled in place: what is made elsewhere is copied once more. This is done for each message of each subscription.
    """
    counts_attempts = subscription.dead_letter_topic is not None
    for one in messages:
        received = target.add(ack_id=str(one.ack_id))
        message = received.message
        message.data = one.data
        message.message_id = str(one.ack_id.offset)
        if one.ordering_key:
            message.ordering_key = one.ordering_key
        if one.attributes:
            message.attributes.update(one.attributes)
        if one.key:
            message.attributes[KEY_ATTRIBUTE] = one.key
        seconds, microseconds = divmod(one.published_at_us, 1_000_000)
        message.publish_time.seconds = seconds
        message.publish_time.nanos = microseconds * 1000
        if counts_attempts:
            received.delivery_attempt = one.attempt
