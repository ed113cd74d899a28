"""What the gateway keeps and lets go: unacknowledged messages, and the log beneath."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from google.protobuf import duration_pb2
from google.pubsub_v1.types import Subscription, Topic

from clientmgr.broker.gateway.server import Gateway
from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.broker.pubsub.client import PubSubClient
from clientmgr.broker.pubsub.wire import to_proto
from clientmgr.database import Database, Role
from clientmgr.settings import Settings

pytestmark = pytest.mark.anyio

NAME = "kept"


@pytest.fixture
async def settings(database: Database, settings_for: Callable[[Database], Settings]) -> Settings:
    return settings_for(database).model_copy(update={"pubsub_gateway_port": 0, "broker_retention_hours": 0.0})


@pytest.fixture
async def gateway(anyio_backend: str, database: Database, settings: Settings) -> AsyncIterator[Gateway]:
    async with Gateway(settings, database) as running:
        yield running


@pytest.fixture
async def client(gateway: Gateway, settings: Settings) -> AsyncIterator[PubSubClient]:
    client = PubSubClient(settings.model_copy(update={"pubsub_emulator_host": gateway.address}))
    await client.open()
    yield client
    await client.close()


def run_sql(database: Database, sql: str) -> list[tuple[Any, ...]]:
    with database.connect(Role.OWNER, autocommit=True) as connection:
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description else []


async def subscribed(client: PubSubClient, *, topic_keeps_s: int = 0, **options: Any) -> None:
    topic = Topic(name=client.topic_path(NAME))
    if topic_keeps_s:
        topic.message_retention_duration = duration_pb2.Duration(seconds=topic_keeps_s)
    await client.create_topic(topic)
    await client.create_subscription(
        Subscription(name=client.subscription_path(NAME), topic=client.topic_path(NAME), **options)
    )


async def published(client: PubSubClient, *bodies: bytes) -> None:
    await client.publish(NAME, [to_proto(Message(body, tenant="1")) for body in bodies])


async def trimmed(database: Database, settings: Settings) -> int:
    async with PostgresBroker(database, settings) as broker:
        return await broker.trim()


async def test_the_log_keeps_what_a_subscription_has_not_acknowledged(
    gateway: Gateway, client: PubSubClient, database: Database, settings: Settings
) -> None:
    await subscribed(client)
    await published(client, b"1", b"2", b"3")
    one, two, three = await client.pull(NAME, NAME, 10, 5.0)
    await client.acknowledge(NAME, [one.ack_id, three.ack_id])
    await gateway.housekeeping.tidy()
    assert await trimmed(database, settings) == 1  # 2 is not acknowledged, and 3 lies behind it
    await client.set_deadline(NAME, [two.ack_id], 0)
    (again,) = await client.pull(NAME, NAME, 10, 5.0)
    await client.acknowledge(NAME, [again.ack_id])
    await gateway.housekeeping.tidy()
    assert await trimmed(database, settings) == 2


async def test_the_log_keeps_acknowledged_messages_where_topic_or_subscription_ask_for_it(
    gateway: Gateway, client: PubSubClient, database: Database, settings: Settings
) -> None:
    await subscribed(client, topic_keeps_s=3600)
    await published(client, b"old", b"new")
    run_sql(database, "UPDATE clientmgr.outbox_message_t SET published_at = now() - interval '2 h' WHERE c_offset = 1")
    await client.acknowledge(NAME, [one.ack_id for one in await client.pull(NAME, NAME, 10, 5.0)])
    await gateway.housekeeping.tidy()
    assert await trimmed(database, settings) == 1
    await client.seek_to_start(NAME)
    assert [one.message.data for one in await client.pull(NAME, NAME, 10, 5.0)] == [b"new"]


async def test_what_is_older_than_a_subscription_keeps_is_dropped(
    gateway: Gateway, client: PubSubClient, database: Database
) -> None:
    await subscribed(
        client, message_retention_duration=duration_pb2.Duration(seconds=3600), enable_message_ordering=True
    )
    await published(client, b"in hand", b"waits", b"new")
    (held,) = await client.pull(NAME, NAME, 1, 5.0)
    assert held.message.data == b"in hand"
    run_sql(database, "UPDATE clientmgr.outbox_message_t SET published_at = now() - interval '2 h' WHERE c_offset < 3")
    await gateway.housekeeping.tidy()
    (left,) = await client.pull(NAME, NAME, 10, 5.0)
    assert left.message.data == b"new"


async def test_a_deleted_subscription_holds_nothing_back(
    gateway: Gateway, client: PubSubClient, database: Database, settings: Settings
) -> None:
    await subscribed(client)
    await published(client, b"1")
    assert await trimmed(database, settings) == 0
    await client._subscriber.delete_subscription(request={"subscription": client.subscription_path(NAME)})
    assert await trimmed(database, settings) == 1
    for table in ("subscriptions", "cursors", "deliveries"):
        assert run_sql(database, f"SELECT * FROM clientmgr.gateway_{table}") == []
