"""Puts the gateway together and runs it: `serve` for a process, `Gateway` for whoever needs its address."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import grpc

from clientmgr.base.database import Database
from clientmgr.base.errors import SettingsError
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.broker.gateway import protection
from clientmgr.broker.gateway.admission import Admission
from clientmgr.broker.gateway.answers import Answers
from clientmgr.broker.gateway.dead_letters import DeadLetters
from clientmgr.broker.gateway.delivery import Delivery
from clientmgr.broker.gateway.front import LOOPBACK, Front
from clientmgr.broker.gateway.leases import Leases
from clientmgr.broker.gateway.maintenance import Maintenance
from clientmgr.broker.gateway.names import Names
from clientmgr.broker.gateway.pool import SETTLING_POOL_SIZE, gateway_pool
from clientmgr.broker.gateway.publisher_service import PublisherService
from clientmgr.broker.gateway.publishing import Publishing
from clientmgr.broker.gateway.rpc import MAX_BODY_BYTES, Calls, UnaryCall
from clientmgr.broker.gateway.schemas import list_schemas
from clientmgr.broker.gateway.snapshots import Snapshots
from clientmgr.broker.gateway.streams import Streams
from clientmgr.broker.gateway.subscriber import MessageCalls
from clientmgr.broker.gateway.subscriptions import Subscriptions
from clientmgr.broker.gateway.wakeups import Wakeups

log = get_logger(__name__)

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_BODY_BYTES),
    ("grpc.max_send_message_length", 32 * 1024 * 1024),
    # What a client may send before its call is admitted: this much a call, and this many calls a connection.
    ("grpc.http2.lookahead_bytes", 65_536),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.max_concurrent_streams", 200),
    # Two gateways on one port would each get some of the calls, unnoticed.
    ("grpc.so_reuseport", 0),
    # Don't cut off clients that ping more often than gRPC likes: Google's do.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # A client whose machine is gone closes no connection: its leases are released when these pings go unanswered.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)


async def serve(
    settings: Settings,
    database: Database,
    stop: asyncio.Event,
    *,
    on_ready: Callable[[int], None] | None = None,
) -> None:
    """Run the gateway until `stop` is set. `on_ready` is called with the port once it answers."""
    async with Gateway(settings, database) as gateway:
        log.info("Pub/Sub gateway is ready", host=settings.pubsub_gateway_host, port=gateway.port)
        if on_ready is not None:
            on_ready(gateway.port)
        await gateway.run_until(stop)
        log.info("Pub/Sub gateway is stopping")


class Gateway:
    """A running gateway, as `async with`. On the way out streams are closed and their leases released."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        names = Names(settings.pubsub_project)
        self._credentials = protection.server_credentials(settings)
        self._access = protection.access(settings, names)
        limits = settings.pubsub_gateway_max_bytes, settings.pubsub_gateway_max_client_bytes
        self._admission = Admission(*limits)
        self._stop = asyncio.Event()
        self._pool = gateway_pool(database)
        self._settling_pool = gateway_pool(database, SETTLING_POOL_SIZE)
        self._wakeups = Wakeups(database, self._pool, settings.broker_wait_period_ms / 1000)
        self._subscriptions = Subscriptions(self._pool, names, self._wakeups, settings.pubsub_gateway_max_subscriptions)
        self._dead_letters = DeadLetters(self._pool, names, self._wakeups)
        self._leases = Leases(self._pool, self._settling_pool, self._wakeups)
        self._delivery = Delivery(self._leases, self._dead_letters, Answers(*limits))
        self._publishing = Publishing(self._pool, names, self._wakeups, settings.broker_publish_timeout_ms)
        self._snapshots = Snapshots(self._pool, self._subscriptions, settings.pubsub_gateway_max_subscriptions)
        self._streams = Streams(self._subscriptions, self._leases, self._delivery, self._wakeups, self._stop)
        self._publisher = PublisherService(self._pool, names, self._publishing, settings)
        self._messages = MessageCalls(self._subscriptions, self._streams, self._delivery, self._wakeups, self._stop)
        self.maintenance = Maintenance(self._pool, self._subscriptions, self._dead_letters, self._wakeups.due_news)
        self._server: Any = None
        self._front: Front | None = None
        self._background: list[asyncio.Task[None]] = []
        self.port = 0

    @property
    def address(self) -> str:
        """What PUBSUB_EMULATOR_HOST is to be set to."""
        return f"{self._settings.pubsub_gateway_host}:{self.port}"

    async def run_until(self, stop: asyncio.Event) -> None:
        """Returns when `stop` is set. Raises when a background task fails: a gateway without it would not work."""
        stopped = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait({stopped, *self._background}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopped}:
                task.result()
        finally:
            stopped.cancel()

    async def __aenter__(self) -> Self:
        await self._pool.open()
        await self._settling_pool.open()
        self._server = grpc.aio.server(options=_OPTIONS)
        calls = Calls(self._unary_calls(), self._streams.streaming_pull, self._access, self._admission)
        self._server.add_generic_rpc_handlers((calls,))
        try:
            await self._listen()
        except BaseException:
            await self._close_pools()
            raise
        self._background = [
            asyncio.create_task(self._wakeups.run(self._stop)),
            asyncio.create_task(self.maintenance.run(self._stop)),
        ]
        return self

    async def _listen(self) -> None:
        host, port = self._settings.pubsub_gateway_host, self._settings.pubsub_gateway_port
        try:
            inner, tls = f"{LOOPBACK}:0", self._credentials is not None
            if tls:
                inner_port = self._server.add_secure_port(inner, self._credentials)
            else:
                inner_port = self._server.add_insecure_port(inner)
            self._front = Front(inner_port, self._settings, tls=tls)
            await self._server.start()
            self.port = await self._front.listen(host, port)
        except (RuntimeError, OSError):
            await self._server.stop(None)
            raise SettingsError(
                f"the Pub/Sub gateway can't listen on {host}:{port}: "
                "choose another PUBSUB_GATEWAY_PORT, or 0 for a free one"
            ) from None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._front is not None:
            self._front.stop_listening()
        # Streams end by themselves now, calls under way get the time to answer, new ones are refused.
        await self._server.stop(grace=self._settings.shutdown_timeout_s / 2)
        if self._front is not None:
            await self._front.close()
        await self._publishing.finish()
        await self._leases.finish()
        await self._delivery.finish()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._close_pools()

    async def _close_pools(self) -> None:
        await self._settling_pool.close()
        await self._pool.close()

    def _unary_calls(self) -> dict[str, UnaryCall]:
        publisher, subscriber = "google.pubsub.v1.Publisher", "google.pubsub.v1.Subscriber"
        return {
            f"{publisher}/CreateTopic": self._publisher.create_topic,
            f"{publisher}/UpdateTopic": self._publisher.update_topic,
            f"{publisher}/Publish": self._publisher.publish,
            f"{publisher}/GetTopic": self._publisher.get_topic,
            f"{publisher}/ListTopics": self._publisher.list_topics,
            f"{publisher}/ListTopicSubscriptions": self._publisher.list_topic_subscriptions,
            f"{publisher}/DeleteTopic": self._publisher.delete_topic,
            f"{publisher}/ListTopicSnapshots": self._snapshots.list_topic_snapshots,
            f"{publisher}/DetachSubscription": self._subscriptions.detach_subscription,
            f"{subscriber}/CreateSubscription": self._subscriptions.create_subscription,
            f"{subscriber}/GetSubscription": self._subscriptions.get_subscription,
            f"{subscriber}/UpdateSubscription": self._subscriptions.update_subscription,
            f"{subscriber}/ListSubscriptions": self._subscriptions.list_subscriptions,
            f"{subscriber}/DeleteSubscription": self._subscriptions.delete_subscription,
            f"{subscriber}/ModifyPushConfig": self._subscriptions.modify_push_config,
            f"{subscriber}/CreateSnapshot": self._snapshots.create_snapshot,
            f"{subscriber}/GetSnapshot": self._snapshots.get_snapshot,
            f"{subscriber}/UpdateSnapshot": self._snapshots.update_snapshot,
            f"{subscriber}/ListSnapshots": self._snapshots.list_snapshots,
            f"{subscriber}/DeleteSnapshot": self._snapshots.delete_snapshot,
            f"{subscriber}/Seek": self._snapshots.seek,
            f"{subscriber}/Pull": self._messages.pull,
            f"{subscriber}/Acknowledge": self._messages.acknowledge,
            f"{subscriber}/ModifyAckDeadline": self._messages.modify_ack_deadline,
            "google.pubsub.v1.SchemaService/ListSchemas": list_schemas,
        }
