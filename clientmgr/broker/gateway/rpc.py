"""How calls reach the services: who calls, names, message types, and errors turned into statuses.

To gRPC every call here is a stream of requests. Only then does our code run before the body is taken, and can refuse a
stranger, or let a caller wait, while the body is still the client's. On the wire a stream of one is a unary call.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from clientmgr.base.errors import is_transient
from clientmgr.base.logs import get_logger
from clientmgr.broker.gateway import protos
from clientmgr.broker.gateway.admission import Admission
from clientmgr.broker.gateway.callers import Access, Caller
from clientmgr.broker.gateway.protos import Proto
from clientmgr.broker.gateway.refusals import Refusal, invalid, unimplemented

log = get_logger(__name__)

# A publish request may have 10 MB of messages and their attributes. One that is a little larger is refused in words;
# of one that is larger than this gRPC takes nothing.
MAX_BODY_BYTES = 10_400_000
BODY_S = 30.0
# Of a request on a stream, as Google has it for acknowledgements. It waits for no place: a stream is open for weeks.
MAX_STREAM_REQUEST_BYTES = 524_288


@dataclass(frozen=True, slots=True)
class Call:
    """What a service knows of a call besides its request."""

    context: Any
    caller: Caller
    peer: str
    """The client's address. Taken at the start: gRPC crashes when it is asked for that of a call that has ended."""
    received_at: float
    """By `time.monotonic`."""


UnaryCall = Callable[[Proto, Call], Awaitable[Proto]]
StreamCall = Callable[[Call], Awaitable[None]]

# Request and response of each call that we know, by its full name.
_TYPES: Mapping[str, tuple[Proto, Proto]] = {
    "google.pubsub.v1.Publisher/CreateTopic": (protos.Topic, protos.Topic),
    "google.pubsub.v1.Publisher/UpdateTopic": (protos.UpdateTopicRequest, protos.Topic),
    "google.pubsub.v1.Publisher/Publish": (protos.PublishRequest, protos.PublishResponse),
    "google.pubsub.v1.Publisher/GetTopic": (protos.GetTopicRequest, protos.Topic),
    "google.pubsub.v1.Publisher/ListTopics": (protos.ListTopicsRequest, protos.ListTopicsResponse),
    "google.pubsub.v1.Publisher/ListTopicSubscriptions": (
        protos.ListTopicSubscriptionsRequest,
        protos.ListTopicSubscriptionsResponse,
    ),
    "google.pubsub.v1.Publisher/DeleteTopic": (protos.DeleteTopicRequest, protos.Empty),
    "google.pubsub.v1.Publisher/ListTopicSnapshots": (
        protos.ListTopicSnapshotsRequest,
        protos.ListTopicSnapshotsResponse,
    ),
    "google.pubsub.v1.Publisher/DetachSubscription": (
        protos.DetachSubscriptionRequest,
        protos.DetachSubscriptionResponse,
    ),
    "google.pubsub.v1.Subscriber/CreateSubscription": (protos.Subscription, protos.Subscription),
    "google.pubsub.v1.Subscriber/GetSubscription": (protos.GetSubscriptionRequest, protos.Subscription),
    "google.pubsub.v1.Subscriber/UpdateSubscription": (protos.UpdateSubscriptionRequest, protos.Subscription),
    "google.pubsub.v1.Subscriber/ListSubscriptions": (
        protos.ListSubscriptionsRequest,
        protos.ListSubscriptionsResponse,
    ),
    "google.pubsub.v1.Subscriber/DeleteSubscription": (protos.DeleteSubscriptionRequest, protos.Empty),
    "google.pubsub.v1.Subscriber/ModifyAckDeadline": (protos.ModifyAckDeadlineRequest, protos.Empty),
    "google.pubsub.v1.Subscriber/Acknowledge": (protos.AcknowledgeRequest, protos.Empty),
    "google.pubsub.v1.Subscriber/Pull": (protos.PullRequest, protos.PullResponse),
    "google.pubsub.v1.Subscriber/Seek": (protos.SeekRequest, protos.SeekResponse),
    "google.pubsub.v1.Subscriber/ModifyPushConfig": (protos.ModifyPushConfigRequest, protos.Empty),
    "google.pubsub.v1.Subscriber/CreateSnapshot": (protos.CreateSnapshotRequest, protos.Snapshot),
    "google.pubsub.v1.Subscriber/GetSnapshot": (protos.GetSnapshotRequest, protos.Snapshot),
    "google.pubsub.v1.Subscriber/UpdateSnapshot": (protos.UpdateSnapshotRequest, protos.Snapshot),
    "google.pubsub.v1.Subscriber/ListSnapshots": (protos.ListSnapshotsRequest, protos.ListSnapshotsResponse),
    "google.pubsub.v1.Subscriber/DeleteSnapshot": (protos.DeleteSnapshotRequest, protos.Empty),
    "google.pubsub.v1.SchemaService/ListSchemas": (protos.ListSchemasRequest, protos.ListSchemasResponse),
}
STREAMING_PULL = "google.pubsub.v1.Subscriber/StreamingPull"


@dataclass(frozen=True)
class Calls(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    """Finds the handler of a call. A call without a handler is refused with a reason."""

    unary: Mapping[str, UnaryCall]
    """By full name, as in `_TYPES`."""
    streaming_pull: StreamCall
    access: Access
    admission: Admission

    def service(self, handler_call_details: Any) -> Any:
        name = handler_call_details.method.lstrip("/")
        if name == STREAMING_PULL:
            return grpc.stream_stream_rpc_method_handler(self._stream_handler())
        call = self.unary.get(name)
        if call is None:
            return grpc.stream_unary_rpc_method_handler(_refusing_handler(name))
        request_type, response_type = _TYPES[name]
        return grpc.stream_unary_rpc_method_handler(
            self._unary_handler(name, call, request_type), response_serializer=response_type.SerializeToString
        )

    def _unary_handler(self, name: str, call: UnaryCall, request_type: Proto) -> Any:
        async def handle(_bodies: AsyncIterator[bytes], context: Any) -> Proto:
            try:
                return await self._answer(context, call, request_type)
            except Exception as error:  # noqa: BLE001  every error becomes a status
                status = _status(error, name)
            # Out here: gRPC keeps what abort raises in a circle, and with it all that the error's frames hold.
            return await context.abort(*status)

        return handle

    async def _answer(self, context: Any, call: UnaryCall, request_type: Proto) -> Proto:
        received_at, peer = time.monotonic(), context.peer()
        caller = self.access.caller(context)
        async with self.admission.place(caller.client, MAX_BODY_BYTES) as place:
            body = await _body(context)
            place.shrink(len(body))
            request = _parsed(body, request_type)
            del body
            return await call(request, Call(context, caller, peer, received_at))

    def _stream_handler(self) -> Any:
        async def handle(_requests: AsyncIterator[bytes], context: Any) -> None:
            try:
                await self.streaming_pull(Call(context, self.access.caller(context), context.peer(), time.monotonic()))
            except Exception as error:  # noqa: BLE001  every error becomes a status
                status = _status(error, STREAMING_PULL)
            else:
                return
            await context.abort(*status)

        return handle


async def _body(context: Any) -> bytes:
    """Read past the iterator, which would keep the body. Nobody keeps its place without sending anything."""
    try:
        async with asyncio.timeout(BODY_S):
            body = await context.read()
    except TimeoutError:
        raise Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, f"The request did not arrive within {BODY_S:g} s.") from None
    if body is grpc.aio.EOF:
        raise invalid("The call has no request.")
    return bytes(body)


async def next_stream_request(context: Any) -> Proto | None:
    """The next request of a StreamingPull; None: the client has sent its last one. Large ones are not even parsed."""
    body = await context.read()
    if body is grpc.aio.EOF:
        return None
    if len(body) > MAX_STREAM_REQUEST_BYTES:
        raise invalid(f"The request is too large: {len(body)} bytes given, {MAX_STREAM_REQUEST_BYTES} allowed.")
    return _parsed(body, protos.StreamingPullRequest)


def _parsed(body: bytes, request_type: Proto) -> Proto:
    try:
        return request_type.FromString(body)
    except DecodeError:
        raise invalid(f"The request is no {request_type.DESCRIPTOR.full_name}.") from None


def _refusing_handler(name: str) -> Any:
    async def handle(_bodies: AsyncIterator[bytes], context: Any) -> Proto:
        await context.abort(*_status(unimplemented(name), name))

    return handle


def _status(error: Exception, name: str) -> tuple[grpc.StatusCode, str, tuple[tuple[str, bytes], ...]]:
    """What `abort` takes."""
    if isinstance(error, Refusal):
        return error.code, error.message, error.trailing_metadata()
    if is_transient(error):
        # The clients retry by themselves until the database is back.
        log.warning("the database does not answer", call=name, error=str(error))
        return grpc.StatusCode.UNAVAILABLE, f"The gateway's database does not answer: {error}", ()
    log.error("call failed", call=name, exc_info=error)
    return grpc.StatusCode.INTERNAL, "The gateway failed; its log says why.", ()
