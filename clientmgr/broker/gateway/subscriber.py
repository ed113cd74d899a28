"""The Subscriber service's calls about messages: Pull, Acknowledge, ModifyAckDeadline. Streams have their own file."""

import asyncio
import time
from collections.abc import Sequence

import grpc

from clientmgr.broker.gateway.delivery import MAX_RESPONSE_BYTES, Delivery, add_received
from clientmgr.broker.gateway.leases import AckId, Deadline
from clientmgr.broker.gateway.names import check_subscription
from clientmgr.broker.gateway.protos import Empty, Proto, PullResponse
from clientmgr.broker.gateway.refusals import Refusal, invalid
from clientmgr.broker.gateway.rpc import Call
from clientmgr.broker.gateway.signals import wait_any
from clientmgr.broker.gateway.streams import Streams, checked_deadline
from clientmgr.broker.gateway.subscriptions import Subscriptions
from clientmgr.broker.gateway.wakeups import Wakeups

MAX_WAIT_S = 90.0
# Answer "nothing" this long before the client gives up, so that it does not see an error.
DEADLINE_MARGIN_S = 0.25
PERMANENT_FAILURE = "PERMANENT_FAILURE_INVALID_ACK_ID"
ASK_AGAIN = "TRANSIENT_FAILURE_ASK_AGAIN"


class MessageCalls:
    """Unary calls on messages."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        streams: Streams,
        delivery: Delivery,
        wakeups: Wakeups,
        stop: asyncio.Event,
    ) -> None:
        self._subscriptions = subscriptions
        self._streams = streams
        self._delivery = delivery
        self._wakeups = wakeups
        self._stop = stop

    async def pull(self, request: Proto, call: Call) -> Proto:
        if request.max_messages <= 0:
            raise invalid(f"Invalid max_messages: {request.max_messages} given, at least 1 needed.")
        call.caller.ensure_may_settle(check_subscription(request.subscription))
        subscription = await self._subscriptions.find_attached(request.subscription)
        signal = self._wakeups.signal(subscription.id, subscription.topic_id)
        clock = asyncio.get_running_loop().time
        remaining = call.context.time_remaining()
        wait_s = MAX_WAIT_S if remaining is None else min(MAX_WAIT_S, remaining - DEADLINE_MARGIN_S)
        give_up_at = clock() + (0 if request.return_immediately else wait_s)
        while True:
            news = signal.event
            # Each time anew: its rights may have been taken away while it waited.
            call.caller.ensure_may_read(subscription)
            room, since = self._delivery.answers.room.event, time.monotonic()
            claimed = await self._delivery.take(call, subscription, request.max_messages, MAX_RESPONSE_BYTES)
            if claimed is not None:
                messages, answer = claimed
                answer.leave_with(call.context)
                sent = [message.ack_id for message in messages]
                self._delivery.count_from_now(subscription.name, sent, subscription.ack_deadline, since)
                response = PullResponse()
                add_received(response.received_messages, subscription, messages)
                return response
            if clock() >= give_up_at or self._stop.is_set():
                return PullResponse()
            self._wakeups.look_now()
            await wait_any(give_up_at - clock(), news, room, self._stop)
            # It may have been changed, detached or made anew while nothing came.
            subscription = await self._subscriptions.find_attached(request.subscription)

    async def acknowledge(self, request: Proto, call: Call) -> Proto:
        name = await self._checked(request.subscription, call)
        ack_ids = [AckId.parse(text) for text in request.ack_ids]
        if not ack_ids:
            raise invalid("No ack ids specified.")
        await self._subscriptions.ensure_own(name, ack_ids)
        _raise_failures(request.ack_ids, await self._streams.acknowledge(name, ack_ids, call.received_at))
        return Empty()

    async def modify_ack_deadline(self, request: Proto, call: Call) -> Proto:
        name = await self._checked(request.subscription, call)
        seconds = checked_deadline(request.ack_deadline_seconds)
        deadlines = [Deadline(AckId.parse(text), seconds) for text in request.ack_ids]
        if not deadlines:
            raise invalid("No ack ids specified.")
        await self._subscriptions.ensure_own(name, [deadline.ack_id for deadline in deadlines])
        results = await self._streams.modify(name, deadlines, call.received_at)
        if not all(results) and (await self._subscriptions.find(name)).exactly_once:
            _raise_failures(request.ack_ids, results)
        return Empty()

    async def _checked(self, name: str, call: Call) -> str:
        """The subscription's name, if the caller may acknowledge there."""
        call.caller.ensure_may_settle(check_subscription(name))
        if call.caller.is_limited:
            # Where nothing is exactly once, any acknowledgement of a message counts.
            call.caller.ensure_may_read(await self._subscriptions.find(name))
        return name


def _raise_failures(ack_ids: Sequence[str], results: Sequence[bool]) -> None:
    """Tell a client of an exactly-once subscription which of its leases were over.

    Google's clients take every id of a failed call that has no entry of its own for failed, too. So those that
    succeeded are marked as worth asking again: the client does, and hears yes.
    """
    if all(results):
        return
    raise Refusal(
        grpc.StatusCode.FAILED_PRECONDITION,
        "Some acknowledgement ids in the request were invalid. This could be because the acknowledgement ids have "
        "expired or the acknowledgement ids were malformed.",
        {
            ack_id: ASK_AGAIN if succeeded else PERMANENT_FAILURE
            for ack_id, succeeded in zip(ack_ids, results, strict=True)
        },
    )
