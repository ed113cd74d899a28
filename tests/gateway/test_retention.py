"""What the gateway keeps and lets go: unacknowledged messages, and the log beneath."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from google.api_core import exceptions
from google.protobuf import duration_pb2
from google.pubsub_v1.types import DeadLetterPolicy, Subscription, Topic

from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.broker.gateway import maintenance
from clientmgr.broker.gateway.server import Gateway
from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.lag import subscription_lag
from clientmgr.broker.postgres.retention import trim
from clientmgr.broker.postgres.topic_administration import resize_topic
from clientmgr.broker.pubsub.client import PubSubClient
from clientmgr.broker.pubsub.wire import to_proto
from tests.broker.recording import until

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
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        return await trim(connection, retention_hours=settings.broker_retention_hours)


async def test_the_log_keeps_what_a_subscription_has_not_acknowledged(
    gateway: Gateway, client: PubSubClient, database: Database, settings: Settings
) -> None:
    await subscribed(client)
    await published(client, b"1", b"2", b"3")
    one, two, three = await client.pull(NAME, NAME, 10, 5.0)
    await client.acknowledge(NAME, [one.ack_id, three.ack_id])
    await gateway.maintenance.apply_retention()
    assert await trimmed(database, settings) == 1  # 2 is not acknowledged, and 3 lies behind it
    await client.set_deadline(NAME, [two.ack_id], 0)
    (again,) = await client.pull(NAME, NAME, 10, 5.0)
    await client.acknowledge(NAME, [again.ack_id])
    await gateway.maintenance.apply_retention()
    assert await trimmed(database, settings) == 2


async def test_the_log_keeps_acknowledged_messages_where_topic_or_subscription_ask_for_it(
    gateway: Gateway, client: PubSubClient, database: Database, settings: Settings
) -> None:
    await subscribed(client, topic_keeps_s=3600)
    await published(client, b"old", b"new")
    run_sql(database, "UPDATE clientmgr.outbox_message_t SET published_at = now() - interval '2 h' WHERE c_offset = 1")
    await client.acknowledge(NAME, [one.ack_id for one in await client.pull(NAME, NAME, 10, 5.0)])
    await gateway.maintenance.apply_retention()
    assert await trimmed(database, settings) == 1
    await client.seek_to_start(NAME)
    assert [one.message.data for one in await client.pull(NAME, NAME, 10, 5.0)] == [b"new"]


async def test_a_topic_that_keeps_acknowledged_messages_is_no_reader_that_lags(
    gateway: Gateway, client: PubSubClient, database: Database
) -> None:
    await subscribed(client, topic_keeps_s=3600)
    await published(client, b"1", b"2")
    async with await database.connect_async(Role.READER, autocommit=True) as connection:
        lags = await subscription_lag(connection)
    assert [(lag.subscription, lag.messages) for lag in lags] == [(client.subscription_path(NAME), 2)]


async def test_a_topic_that_keeps_acknowledged_messages_can_be_resized_and_keeps_them(
    gateway: Gateway, client: PubSubClient, database: Database, settings: Settings
) -> None:
    await subscribed(client, topic_keeps_s=3600)
    await published(client, b"1", b"2")
    await client.acknowledge(NAME, [one.ack_id for one in await client.pull(NAME, NAME, 10, 5.0)])
    await gateway.maintenance.apply_retention()
    for partitions in (32, 4):
        async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
            await resize_topic(connection, NAME, partitions)
        assert await trimmed(database, settings) == 0
    await client.seek_to_start(NAME)
    assert [one.message.data for one in await client.pull(NAME, NAME, 10, 5.0)] == [b"1", b"2"]


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
    await gateway.maintenance.apply_retention()
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


async def with_dead_letter_policy(client: PubSubClient, database: Database, name: str) -> int:
    """The id of a new subscription to topic NAME."""
    dead_topic = client.topic_path("dead")
    await client.create_topic(Topic(name=dead_topic))
    await client.create_subscription(
        Subscription(
            name=client.subscription_path(name),
            topic=client.topic_path(NAME),
            dead_letter_policy=DeadLetterPolicy(dead_letter_topic=dead_topic, max_delivery_attempts=5),
        )
    )
    ((subscription_id,),) = run_sql(
        database, f"SELECT id FROM clientmgr.gateway_subscriptions WHERE name LIKE '%/{name}'"
    )
    return int(subscription_id)


EXHAUST = "UPDATE clientmgr.gateway_deliveries SET attempt = 5, available_at = now()"


async def test_maintenance_goes_on_when_a_subscription_is_deleted_under_it(
    gateway: Gateway, client: PubSubClient, database: Database
) -> None:
    await subscribed(client)
    subscription_id = await with_dead_letter_policy(client, database, "doomed")
    await published(client, b"1")
    assert len(await client.pull("doomed", NAME, 10, 5.0)) == 1
    with database.connect(Role.OWNER) as deleting:
        deleting.execute(
            "SELECT FROM clientmgr.gateway_cursors WHERE subscription_id = %s FOR UPDATE", [subscription_id]
        )
        run_sql(database, EXHAUST)
        forwarding = asyncio.create_task(gateway.maintenance.forward_dead_letters())
        pulling = asyncio.create_task(client.pull("doomed", NAME, 10, 20.0))
        waiting = (
            "SELECT count(*) >= 2 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%gateway_lock%'"
        )
        await until(lambda: run_sql(database, waiting) == [(True,)], "both to wait for the subscription")
        deleting.execute("DELETE FROM clientmgr.gateway_subscriptions WHERE id = %s", [subscription_id])
        deleting.commit()
    await asyncio.wait_for(forwarding, 20)
    with pytest.raises(exceptions.NotFound):
        await asyncio.wait_for(pulling, 20)


async def test_dead_letters_are_forwarded_though_those_of_another_subscription_can_not_be(
    gateway: Gateway, client: PubSubClient, database: Database
) -> None:
    await subscribed(client)
    broken = await with_dead_letter_policy(client, database, "broken")
    await with_dead_letter_policy(client, database, "sound")
    run_sql(
        database,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$;"
        "CREATE TRIGGER refuse BEFORE DELETE ON clientmgr.gateway_deliveries"
        f" FOR EACH ROW WHEN (OLD.subscription_id = {broken}) EXECUTE FUNCTION refuse()",
    )
    await published(client, b"1")
    for name in ("broken", "sound"):
        assert len(await client.pull(name, NAME, 10, 5.0)) == 1
    run_sql(database, EXHAUST)
    await gateway.maintenance.forward_dead_letters()
    assert run_sql(database, "SELECT subscription_id FROM clientmgr.gateway_deliveries") == [(broken,)]


async def test_the_log_keeps_what_a_snapshot_needs_until_the_snapshot_ends(
    gateway: Gateway, client: PubSubClient, database: Database, settings: Settings
) -> None:
    await subscribed(client)
    await published(client, b"1", b"2")
    one, two = await client.pull(NAME, NAME, 10, 5.0)
    await client.acknowledge(NAME, [one.ack_id])
    source, snapshot = client.subscription_path(NAME), f"projects/{settings.pubsub_project}/snapshots/{NAME}"
    await client._subscriber.create_snapshot(request={"name": snapshot, "subscription": source})
    await client.acknowledge(NAME, [two.ack_id])
    await published(client, b"3")
    await client.acknowledge(NAME, [one.ack_id for one in await client.pull(NAME, NAME, 10, 5.0)])
    await gateway.maintenance.apply_retention()
    assert await trimmed(database, settings) == 1
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        assert [lag.subscription for lag in await subscription_lag(connection)] == [source]
        await resize_topic(connection, NAME, 4)
    assert await trimmed(database, settings) == 0
    await client._subscriber.seek(request={"subscription": source, "snapshot": snapshot})
    again = await client.pull(NAME, NAME, 10, 5.0)
    assert [one.message.data for one in again] == [b"2", b"3"]
    await client.acknowledge(NAME, [one.ack_id for one in again])
    run_sql(database, "UPDATE clientmgr.gateway_snapshots SET expires_at = now()")
    await gateway.maintenance.apply_retention()
    assert await trimmed(database, settings) == 2
    assert run_sql(database, "SELECT * FROM clientmgr.gateway_snapshots") == []


async def test_a_detached_subscription_holds_nothing_back(
    gateway: Gateway, client: PubSubClient, database: Database, settings: Settings
) -> None:
    await subscribed(client)
    await published(client, b"1", b"2")
    await client.pull(NAME, NAME, 1, 5.0)
    run_sql(database, f"SELECT clientmgr.gateway_detach('{client.subscription_path(NAME)}')")
    await gateway.maintenance.apply_retention()
    assert await trimmed(database, settings) == 2
    assert run_sql(database, "SELECT * FROM clientmgr.gateway_deliveries") == []


async def test_its_chores_are_rare_as_long_as_there_is_no_subscription(
    gateway: Gateway, client: PubSubClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DEAD_LETTERS_EVERY_S", "RETENTION_EVERY_S"):
        monkeypatch.setattr(maintenance, name, 0.0)
    found: list[bool] = []

    async def noted() -> bool:
        found.append(await gateway.maintenance.apply_retention())
        return found[-1]

    stop, news = asyncio.Event(), asyncio.Event()
    own = maintenance.Maintenance(gateway._pool, gateway._subscriptions, gateway._dead_letters, news)
    monkeypatch.setattr(own, "apply_retention", noted)
    running = asyncio.create_task(own.run(stop))
    await until(lambda: found == [False], "the first of them")
    await subscribed(client)
    for _ in range(3):
        news.set()
        await until(lambda: not news.is_set(), "a turn")
    assert found == [False]
    stop.set()
    await running
