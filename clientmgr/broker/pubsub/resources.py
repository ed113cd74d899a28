"""Topics and subscriptions that the workers need: made where that is allowed, else named, all of them at once."""

from collections.abc import Mapping, Sequence

from google.protobuf import duration_pb2
from google.pubsub_v1 import types

from clientmgr.base.errors import PermanentError
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.broker.message_checks import check_name
from clientmgr.broker.pubsub.client import PubSubClient

log = get_logger(__name__)

# What Google allows a topic to keep acknowledged messages for.
MIN_RETENTION_S, MAX_RETENTION_S = 600, 31 * 86_400


class MissingResourcesError(PermanentError):
    """Topics or subscriptions that are not there, and that we may not or can not make."""

    def __init__(self, project: str, topics: Sequence[str] = (), subscriptions: Sequence[str] = ()) -> None:
        missing = [f"topic {name}" for name in topics] + [f"subscription {name}" for name in subscriptions]
        super().__init__(f"missing in Pub/Sub project {project}: {', '.join(missing)}")
        self.topics = tuple(topics)
        self.subscriptions = tuple(subscriptions)


class Resources:
    """What exists on the server, remembered once seen: topics do not come and go under a running worker."""

    def __init__(self, client: PubSubClient, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._known_topics: set[str] = set()

    async def ensure(self, topics: Sequence[str], subscriptions: Mapping[str, str], *, from_start: bool) -> None:
        """Make all that is missing, or raise with the names of all that is. `subscriptions` maps names to topics."""
        for name in topics:
            check_name("topic", name)
        for name in subscriptions:
            check_name("subscription", name)
        missing_topics = [topic for topic in dict.fromkeys(topics) if not await self._exists(topic)]
        missing_subscriptions = []
        for subscription, topic in subscriptions.items():
            found = await self._client.find_subscription(subscription)
            if found is None:
                missing_subscriptions.append(subscription)
            else:
                self._check_existing(subscription, topic, found)
        if not self._settings.pubsub_create_missing and (missing_topics or missing_subscriptions):
            raise MissingResourcesError(self._settings.pubsub_project, missing_topics, missing_subscriptions)
        for topic in missing_topics:
            await self._create_topic(topic)
        for subscription in missing_subscriptions:
            topic = subscriptions[subscription]
            if not await self._exists(topic):
                raise MissingResourcesError(self._settings.pubsub_project, [topic])
            await self._create_subscription(subscription, topic, from_start=from_start)

    async def require_topics(self, topics: Sequence[str]) -> None:
        """Raise with the names of those that do not exist."""
        missing = [topic for topic in topics if not await self._exists(topic)]
        if missing:
            raise MissingResourcesError(self._settings.pubsub_project, missing)

    def topic_is_gone(self, topic: str) -> MissingResourcesError:
        """The server says so: we remember it no longer. Returns what `require_topics` would raise."""
        self._known_topics.discard(topic)
        return MissingResourcesError(self._settings.pubsub_project, [topic])

    async def _exists(self, topic: str) -> bool:
        if topic not in self._known_topics and await self._client.topic_exists(topic):
            self._known_topics.add(topic)
        return topic in self._known_topics

    async def _create_topic(self, topic: str) -> None:
        request = types.Topic(name=self._client.topic_path(topic))
        retention_s = int(self._settings.broker_retention_hours * 3600)
        if retention_s:
            # Without it a later subscription could not begin at the start, as it can on the log.
            request.message_retention_duration = duration_pb2.Duration(
                seconds=min(max(retention_s, MIN_RETENTION_S), MAX_RETENTION_S)
            )
        await self._client.create_topic(request)
        self._known_topics.add(topic)
        log.info("topic created", topic=topic)

    async def _create_subscription(self, subscription: str, topic: str, *, from_start: bool) -> None:
        request = types.Subscription(
            name=self._client.subscription_path(subscription),
            topic=self._client.topic_path(topic),
            ack_deadline_seconds=self._settings.pubsub_ack_deadline_s,
            enable_message_ordering=True,
            # Never by itself: a worker may be off for longer than Google's 31 days.
            expiration_policy=types.ExpirationPolicy(),
        )
        dead_letter_topic = self._settings.pubsub_dead_letter_topic
        if dead_letter_topic and dead_letter_topic != topic:
            if not await self._exists(dead_letter_topic):
                await self._create_topic(dead_letter_topic)
            request.dead_letter_policy = types.DeadLetterPolicy(
                dead_letter_topic=self._client.topic_path(dead_letter_topic),
                max_delivery_attempts=self._settings.pubsub_max_delivery_attempts,
            )
        if await self._client.create_subscription(request) and from_start:
            await self._client.seek_to_start(subscription)
        log.info("subscription created", subscription=subscription, topic=topic)

    def _check_existing(self, subscription: str, topic: str, found: types.Subscription) -> None:
        if found.topic != self._client.topic_path(topic):
            raise PermanentError(f"subscription {subscription} reads topic {found.topic}, not {topic}")
        if not found.enable_message_ordering:
            log.warning(
                "subscription has no message ordering: a tenant's messages may overtake each other",
                subscription=subscription,
            )
