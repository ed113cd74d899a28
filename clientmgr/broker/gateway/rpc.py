"""How calls reach the services: names, message types, and errors turned into statuses."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from clientmgr.base.errors import is_transient
from clientmgr.base.logs import get_logger
from clientmgr.broker.gateway import protos
from clientmgr.broker.gateway.protos import Proto
from clientmgr.broker.gateway.refusals import Refusal, unimplemented

log = get_logger(__name__)

UnaryCall = Callable[[Proto, Any], Awaitable[Proto]]
StreamCall = Callable[[AsyncIterator[Proto], Any], Awaitable[None]]

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
}
STREAMING_PULL = "google.pubsub.v1.Subscriber/StreamingPull"


@dataclass(frozen=True)
class Calls(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    """Finds the handler of a call. A call without a handler is refused with a reason."""

    unary: Mapping[str, UnaryCall]
    """By full name, as in `_TYPES`."""
    streaming_pull: StreamCall

    def service(self, handler_call_details: Any) -> Any:
        name = handler_call_details.method.lstrip("/")
        if name == STREAMING_PULL:
            return grpc.stream_stream_rpc_method_handler(
                _stream_handler(self.streaming_pull),
                request_deserializer=protos.StreamingPullRequest.FromString,
                response_serializer=protos.StreamingPullResponse.SerializeToString,
            )
        call = self.unary.get(name)
        if call is None:
            return grpc.unary_unary_rpc_method_handler(_refusing_handler(name))
        request_type, response_type = _TYPES[name]
        return grpc.unary_unary_rpc_method_handler(
            _unary_handler(name, call),
            request_deserializer=request_type.FromString,
            response_serializer=response_type.SerializeToString,
        )


def _unary_handler(name: str, call: UnaryCall) -> UnaryCall:
    async def handle(request: Proto, context: Any) -> Proto:
        try:
            return await call(request, context)
        except Exception as error:  # noqa: BLE001  every error becomes a status
            await _abort(context, error, name)

    return handle


def _stream_handler(call: StreamCall) -> StreamCall:
    async def handle(requests: AsyncIterator[Proto], context: Any) -> None:
        try:
            await call(requests, context)
        except Exception as error:  # noqa: BLE001  every error becomes a status
            await _abort(context, error, STREAMING_PULL)

    return handle


def _refusing_handler(name: str) -> UnaryCall:
    async def handle(_request: bytes, context: Any) -> Proto:
        await _abort(context, unimplemented(name), name)

    return handle


async def _abort(context: Any, error: Exception, name: str) -> None:
    if isinstance(error, Refusal):
        await context.abort(error.code, error.message, error.trailing_metadata())
    elif is_transient(error):
        # The clients retry by themselves until the database is back.
        log.warning("the database does not answer", call=name, error=str(error))
        await context.abort(grpc.StatusCode.UNAVAILABLE, f"The gateway's database does not answer: {error}")
    else:
        log.error("call failed", call=name, exc_info=error)
        await context.abort(grpc.StatusCode.INTERNAL, "The gateway failed; its log says why.")
