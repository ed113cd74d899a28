"""StreamingPull: one long call per client that brings messages one way and acknowledgements the other."""

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta

import grpc

from clientmgr.base.errors import first_of
from clientmgr.broker.gateway.configuration import MAX_ACK_DEADLINE_S, SubscriptionRow, check_ack_deadline
from clientmgr.broker.gateway.delivery import MAX_RESPONSE_BYTES, MAX_RESPONSE_MESSAGES, Delivery, add_received
from clientmgr.broker.gateway.leases import AckId, Deadline, LeasedMessage, Leases
from clientmgr.broker.gateway.names import check_subscription
from clientmgr.broker.gateway.protos import Proto, StreamingPullResponse
from clientmgr.broker.gateway.refusals import Refusal, invalid, not_found
from clientmgr.broker.gateway.rpc import Call, next_stream_request
from clientmgr.broker.gateway.signals import Signal, wait_any
from clientmgr.broker.gateway.subscriptions import Subscriptions, ensure_ack_ids_of
from clientmgr.broker.gateway.wakeups import Wakeups

REFRESH_S = 1.0
LOOK_AT_RIGHTS_S = 1.0
# From this version on, a client considers a stream dead that does not answer its empty requests.
KEEP_ALIVE_PROTOCOL_VERSION = 1
# Requests of a stream that are worked on at once. The next ones stay with the client.
MAX_SETTLING = 8
FIRST_REQUEST_ONLY = ("subscription", "max_outstanding_messages", "max_outstanding_bytes", "protocol_version")


class Outstanding:
    """What a stream has sent and the client has not settled: for flow control, and for release when it closes."""

    def __init__(self, holders: dict[AckId, "Outstanding"], max_messages: int, max_bytes: int) -> None:
        self._holders = holders
        self._max_messages = max_messages if max_messages > 0 else MAX_RESPONSE_MESSAGES * 1000
        self._max_bytes = max_bytes if max_bytes > 0 else MAX_RESPONSE_BYTES * 1000
        self._sizes: dict[AckId, int] = {}
        self._bytes = 0
        self.room = Signal()

    @property
    def free_messages(self) -> int:
        return self._max_messages - len(self._sizes)

    @property
    def free_bytes(self) -> int:
        return self._max_bytes - self._bytes

    @property
    def held(self) -> list[AckId]:
        return list(self._sizes)

    def add(self, messages: Sequence[LeasedMessage]) -> None:
        for message in messages:
            self._holders[message.ack_id] = self
            self._sizes[message.ack_id] = len(message.data)
            self._bytes += len(message.data)

    def settle(self, ack_id: AckId) -> None:
        """It was acknowledged or given back, or its lease is over."""
        size = self._sizes.pop(ack_id, None)
        if size is not None:
            self._holders.pop(ack_id, None)
            self._bytes -= size
            self.room.notify()

    def close(self) -> list[AckId]:
        """What is still held, for whoever releases it."""
        held = self.held
        for ack_id in held:
            self._holders.pop(ack_id, None)
        return held


class Streams:
    """The open streams of this process, found by the leases they hold: acknowledgements also come by unary call."""

    def __init__(
        self, subscriptions: Subscriptions, leases: Leases, delivery: Delivery, wakeups: Wakeups, stop: asyncio.Event
    ) -> None:
        self.subscriptions = subscriptions
        self.leases = leases
        self.delivery = delivery
        self.wakeups = wakeups
        self.stop = stop
        self._holders: dict[AckId, Outstanding] = {}

    async def streaming_pull(self, call: Call) -> None:
        """Serve one stream until either side ends it. Its leases are released at once, however it ends."""
        first = await next_stream_request(call.context)
        if first is None:
            return
        call.caller.ensure_may_settle(check_subscription(first.subscription))
        check_ack_deadline("stream_ack_deadline_seconds", first.stream_ack_deadline_seconds)
        subscription = await self.subscriptions.find_attached(first.subscription)
        call.caller.ensure_may_read(subscription)
        outstanding = Outstanding(self._holders, first.max_outstanding_messages, first.max_outstanding_bytes)
        stream = _Stream(self, subscription, outstanding, call, first.stream_ack_deadline_seconds)
        try:
            await stream.run(first)
        finally:
            self.delivery.in_background(self.delivery.give_back(subscription.name, outstanding.close()))

    async def acknowledge(self, subscription: str, ack_ids: Sequence[AckId], received_at: float) -> list[bool]:
        results = await self.leases.acknowledge(subscription, ack_ids, received_at)
        for ack_id in ack_ids:
            self._settle(ack_id)
        return results

    async def modify(self, subscription: str, deadlines: Sequence[Deadline], received_at: float) -> list[bool]:
        results = await self.leases.modify(subscription, deadlines, received_at)
        for deadline in deadlines:
            if deadline.seconds == 0:
                self._settle(deadline.ack_id)
        return results

    def _settle(self, ack_id: AckId) -> None:
        holder = self._holders.get(ack_id)
        if holder is not None:
            holder.settle(ack_id)


class _Stream:
    """One stream: reads requests and sends messages, side by side."""

    def __init__(
        self, streams: Streams, subscription: SubscriptionRow, outstanding: Outstanding, call: Call, deadline_s: int
    ) -> None:
        self._streams = streams
        self._subscription = subscription
        self._opened_on = subscription.id
        self._outstanding = outstanding
        self._call = call
        self._caller = call.caller
        self._lease_time = timedelta(seconds=deadline_s)
        self._refreshed_at = time.monotonic()
        self._client_done = asyncio.Event()
        self._writing = asyncio.Lock()
        self._settling = asyncio.Semaphore(MAX_SETTLING)

    async def run(self, first: Proto) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read(first, tasks))
                sending = tasks.create_task(self._send())
                watching = tasks.create_task(self._watch_rights())
                await sending
                watching.cancel()
        except BaseExceptionGroup as group:
            # The client can be given only one error.
            refusals = group.subgroup(Refusal)
            raise first_of(refusals or group) from None

    async def _watch_rights(self) -> None:
        """A stream may be open for weeks: it ends when its caller's rights do, also while it waits."""
        while True:
            await asyncio.sleep(LOOK_AT_RIGHTS_S)
            self._caller.ensure_may_read(self._subscription)

    async def _read(self, first: Proto, tasks: asyncio.TaskGroup) -> None:
        wants_answers = first.protocol_version >= KEEP_ALIVE_PROTOCOL_VERSION
        request: Proto | None = first
        while request is not None:
            received_at = time.monotonic()
            # Side by side: none waits because one before it asks for a message that is just being claimed.
            await self._settling.acquire()
            settling = tasks.create_task(self._settle(request, received_at))
            settling.add_done_callback(lambda _task: self._settling.release())
            is_empty = not request.ack_ids and not request.modify_deadline_ack_ids
            if is_empty and wants_answers and request is not first:
                await self._write(self._response())
            request = await next_stream_request(self._call.context)
            if request is None:
                break
            if any(getattr(request, field) for field in FIRST_REQUEST_ONLY):
                raise invalid(f"Only a stream's first request may set these: {', '.join(FIRST_REQUEST_ONLY)}.")
            if request.stream_ack_deadline_seconds:
                check_ack_deadline("stream_ack_deadline_seconds", request.stream_ack_deadline_seconds)
                self._lease_time = timedelta(seconds=request.stream_ack_deadline_seconds)
        self._client_done.set()

    async def _settle(self, request: Proto, received_at: float) -> None:
        if len(request.modify_deadline_ack_ids) != len(request.modify_deadline_seconds):
            raise invalid("There must be as many modify_deadline_seconds as modify_deadline_ack_ids.")
        name = self._subscription.name
        self._caller.ensure_may_settle(name)
        acks = [AckId.parse(text) for text in request.ack_ids]
        deadlines = [
            Deadline(AckId.parse(text), checked_deadline(seconds))
            for text, seconds in zip(request.modify_deadline_ack_ids, request.modify_deadline_seconds, strict=True)
        ]
        ensure_ack_ids_of(self._opened_on, (*acks, *(deadline.ack_id for deadline in deadlines)))
        acknowledged = await self._streams.acknowledge(name, acks, received_at)
        modified = await self._streams.modify(name, deadlines, received_at)
        if self._subscription.exactly_once and (acks or deadlines):
            response = self._response()
            for text, succeeded in zip(request.ack_ids, acknowledged, strict=True):
                confirmation = response.acknowledge_confirmation
                (confirmation.ack_ids if succeeded else confirmation.invalid_ack_ids).append(text)
            for text, succeeded in zip(request.modify_deadline_ack_ids, modified, strict=True):
                changes = response.modify_ack_deadline_confirmation
                (changes.ack_ids if succeeded else changes.invalid_ack_ids).append(text)
            await self._write(response)

    async def _write(self, response: Proto) -> None:
        await self._write_bytes(response.SerializeToString())

    async def _write_bytes(self, response: bytes) -> None:
        async with self._writing:
            await self._call.context.write(response)

    async def _send(self) -> None:
        streams, outstanding = self._streams, self._outstanding
        signal = streams.wakeups.signal(self._subscription.id, self._subscription.topic_id)
        while not self._client_done.is_set():
            if streams.stop.is_set():
                raise Refusal(grpc.StatusCode.UNAVAILABLE, "The gateway is stopping; please open the stream again.")
            # Taken before we look, so that whatever comes after the look wakes us.
            news, room, room_on_the_way = signal.event, outstanding.room.event, streams.delivery.answers.room.event
            await self._refresh()
            if outstanding.free_messages > 0 and outstanding.free_bytes > 0:
                self._caller.ensure_may_read(self._subscription)
                if await self._send_messages():
                    continue
                streams.wakeups.look_now()
                await wait_any(None, news, room_on_the_way, streams.stop, self._client_done)
            else:
                await wait_any(REFRESH_S, room, streams.stop, self._client_done)

    async def _send_messages(self) -> bool:
        """Those that are due now. False: there are none, or there is no room for them on the way."""
        outstanding, since = self._outstanding, time.monotonic()
        claimed = await self._streams.delivery.take(
            self._call, self._subscription, outstanding.free_messages, outstanding.free_bytes, self._lease_time
        )
        if claimed is None:
            return False
        messages, answer = claimed
        with answer:
            # Noted first: if the client is gone by now, they are released with the rest.
            outstanding.add(messages)
            response = self._response()
            add_received(response.received_messages, self._subscription, messages)
            body = response.SerializeToString()
            sent = [message.ack_id for message in messages]
            # The client may take its time to read: one copy is enough to wait with.
            del claimed, messages, response
            await self._write_bytes(body)
        self._streams.delivery.count_from_now(self._subscription.name, sent, self._lease_time, since)
        return True

    async def _refresh(self) -> None:
        """Once in a while, see whether the subscription was changed and whether others have settled our messages."""
        if time.monotonic() - self._refreshed_at < REFRESH_S:
            return
        self._refreshed_at = time.monotonic()
        self._subscription = await self._streams.subscriptions.find_attached(self._subscription.name)
        if self._subscription.id != self._opened_on:
            raise not_found(self._subscription.name)  # deleted; this is another of its name
        believed = self._outstanding.held
        if believed:
            for ack_id in set(believed) - await self._streams.leases.still_leased(self._subscription.id, believed):
                self._outstanding.settle(ack_id)

    def _response(self) -> Proto:
        response = StreamingPullResponse()
        response.subscription_properties.exactly_once_delivery_enabled = self._subscription.exactly_once
        response.subscription_properties.message_ordering_enabled = self._subscription.ordered
        return response


def checked_deadline(seconds: int) -> int:
    """A deadline as ModifyAckDeadline allows it."""
    if not 0 <= seconds <= MAX_ACK_DEADLINE_S:
        raise invalid(f"Invalid ack deadline: {seconds} given, 0 to {MAX_ACK_DEADLINE_S} allowed.")
    return seconds
