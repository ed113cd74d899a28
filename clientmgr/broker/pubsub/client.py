"""Every call to Pub/Sub that the transport makes. Each has a deadline: a server that is away is an error, not a hang.

On the generated asyncio clients (`PublisherAsyncClient`, `SubscriberAsyncClient`), not on the high-level ones: those
call back message by message in threads of their own, acknowledge from a queue that tells nobody when, and extend leases
by statistics. A batch that is one transaction needs Pull, an acknowledgement that is awaited, and leases in our hands.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from google.api_core import exceptions
from google.api_core.retry import AsyncRetry
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient, types
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

from clientmgr.base.errors import is_transient
from clientmgr.base.portions import portions
from clientmgr.base.settings import Settings
from clientmgr.broker.pubsub.channels import gateway_channel
from clientmgr.broker.pubsub.wire import Delivery, from_proto

CALL_TIMEOUT_S = 15.0
RETRY_FOR_S = 30.0
EPOCH = datetime(1970, 1, 2, tzinfo=UTC)
# A request with more would pass Google's limit of 512 KiB: its acknowledgement ids are long.
ACKS_A_REQUEST = 1000
MAX_HOLD_S = 600


class PubSubClient:
    """Short names in, short names out: the project is the settings'."""

    def __init__(self, settings: Settings, *, retry_for_s: float = RETRY_FOR_S) -> None:
        """`retry_for_s`: how long a call may take in all, its repetitions included, before it is given up."""
        self._retry = AsyncRetry(predicate=is_transient, initial=0.05, maximum=2.0, multiplier=2.0, timeout=retry_for_s)
        self._project = settings.pubsub_project
        self._connect = gateway_channel(settings)
        self._publisher: PublisherAsyncClient
        self._subscriber: SubscriberAsyncClient

    async def open(self) -> None:
        """Nothing is connected yet; the first call is."""
        if self._connect is not None:
            self._publisher = PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=self._connect()))
            self._subscriber = SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=self._connect()))
        else:
            self._publisher, self._subscriber = PublisherAsyncClient(), SubscriberAsyncClient()

    async def close(self) -> None:
        for client in (self._publisher, self._subscriber):
            transport: Any = client.transport
            await transport.close()

    def topic_path(self, topic: str) -> str:
        return f"projects/{self._project}/topics/{topic}"

    def subscription_path(self, subscription: str) -> str:
        return f"projects/{self._project}/subscriptions/{subscription}"

    async def topic_exists(self, topic: str) -> bool:
        try:
            await self._publisher.get_topic(
                request={"topic": self.topic_path(topic)}, timeout=CALL_TIMEOUT_S, retry=self._retry
            )
        except exceptions.NotFound:
            return False
        return True

    async def create_topic(self, request: types.Topic) -> None:
        try:
            await self._publisher.create_topic(request=request, timeout=CALL_TIMEOUT_S, retry=self._retry)
        except exceptions.AlreadyExists:
            return

    async def find_subscription(self, subscription: str) -> types.Subscription | None:
        try:
            return await self._subscriber.get_subscription(
                request={"subscription": self.subscription_path(subscription)},
                timeout=CALL_TIMEOUT_S,
                retry=self._retry,
            )
        except exceptions.NotFound:
            return None

    async def create_subscription(self, request: types.Subscription) -> bool:
        """Whether it was made, and not there already."""
        try:
            await self._subscriber.create_subscription(request=request, timeout=CALL_TIMEOUT_S, retry=self._retry)
        except exceptions.AlreadyExists:
            return False
        return True

    async def seek_to_start(self, subscription: str) -> None:
        await self._subscriber.seek(
            request={"subscription": self.subscription_path(subscription), "time": EPOCH},
            timeout=CALL_TIMEOUT_S,
            retry=self._retry,
        )

    async def publish(self, topic: str, protos: Sequence[Any]) -> None:
        """Returns when the server has confirmed them. NotFound: there is no such topic."""
        request = types.PublishRequest.wrap(types.PublishRequest.pb()(topic=self.topic_path(topic), messages=protos))
        await self._publisher.publish(request=request, timeout=CALL_TIMEOUT_S, retry=self._retry)

    async def pull(self, subscription: str, topic: str, most: int, wait_s: float) -> list[Delivery]:
        """What is there, or what comes within `wait_s`. Not retried: callers pull in a loop."""
        try:
            response = await self._subscriber.pull(
                request={"subscription": self.subscription_path(subscription), "max_messages": most},
                timeout=wait_s,
                retry=None,
            )
        except exceptions.DeadlineExceeded:
            return []
        return [from_proto(topic, received) for received in types.PullResponse.pb(response).received_messages]

    async def pull_now(self, subscription: str, topic: str, most: int) -> list[Delivery]:
        """What is there at this moment.

        A short `wait_s` would not do: a server that is slow for a moment would look empty. The client warns of the flag
        for this, which is deprecated because a loop around it wastes calls; so we call the transport directly.
        """
        request = types.PullRequest.wrap(
            types.PullRequest.pb()(
                subscription=self.subscription_path(subscription), max_messages=most, return_immediately=True
            )
        )
        call: Any = self._subscriber.transport.pull
        metadata = (("x-goog-request-params", f"subscription={quote(request.subscription)}"),)
        response = await call(request, timeout=CALL_TIMEOUT_S, metadata=metadata)
        return [from_proto(topic, received) for received in types.PullResponse.pb(response).received_messages]

    async def acknowledge(self, subscription: str, ack_ids: Sequence[str]) -> None:
        for portion in portions(ack_ids, ACKS_A_REQUEST):
            await self._subscriber.acknowledge(
                request={"subscription": self.subscription_path(subscription), "ack_ids": list(portion)},
                timeout=CALL_TIMEOUT_S,
                retry=self._retry,
            )

    async def set_deadline(
        self, subscription: str, ack_ids: Sequence[str], seconds: int, *, retry: bool = True
    ) -> None:
        """Keep messages for `seconds` more; 0 gives them back."""
        for portion in portions(ack_ids, ACKS_A_REQUEST):
            await self._subscriber.modify_ack_deadline(
                request={
                    "subscription": self.subscription_path(subscription),
                    "ack_ids": list(portion),
                    "ack_deadline_seconds": min(seconds, MAX_HOLD_S),
                },
                timeout=CALL_TIMEOUT_S,
                retry=self._retry if retry else None,
            )
