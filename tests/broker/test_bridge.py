"""The bridge: what is published to Pub/Sub stands in the log, once, unchanged."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from google.pubsub_v1.types import Subscription, Topic

from clientmgr.base.database import Database
from clientmgr.base.errors import InvalidInputError, PermanentError
from clientmgr.base.settings import Settings
from clientmgr.broker import bridge
from clientmgr.broker.gateway.server import Gateway
from clientmgr.broker.interface import Message
from clientmgr.broker.pubsub.client import PubSubClient
from clientmgr.broker.pubsub.resources import MissingResourcesError
from clientmgr.broker.pubsub.wire import to_proto
from tests.broker.recording import until

pytestmark = pytest.mark.anyio

Query = Callable[..., list[tuple[Any, ...]]]
NAME = "client-manager.activate-customer"
# Who published is for Google to know: what a message says about it does not count.
UNKNOWN = {"clientmgr-publisher": "pubsub:unknown publisher"}


@pytest.fixture
async def google(
    anyio_backend: str, database: Database, settings_for: Callable[[Database], Settings]
) -> AsyncIterator[Settings]:
    """A Pub/Sub that belongs to somebody else: another project than the log's own."""
    settings = settings_for(database).model_copy(update={"pubsub_gateway_port": 0})
    async with Gateway(settings, database) as gateway:
        yield settings.model_copy(update={"pubsub_project": "customers", "pubsub_emulator_host": gateway.address})


@pytest.fixture
async def customers(google: Settings) -> AsyncIterator[PubSubClient]:
    """The customers' own client, with a topic and a subscription that are theirs."""
    client = PubSubClient(google)
    await client.open()
    await client.create_topic(Topic(name=client.topic_path(NAME)))
    await client.create_subscription(
        Subscription(name=client.subscription_path(NAME), topic=client.topic_path(NAME), enable_message_ordering=True)
    )
    yield client
    await client.close()


async def copy(google: Settings, database: Database, **options: Any) -> bridge.BridgeStats:
    routes = options.pop("routes", {NAME: NAME})
    return await bridge.run(google, database, asyncio.Event(), routes=routes, burst=True, burst_quiet_s=0.2, **options)


def in_log(query: Query, topic: str = NAME) -> list[tuple[Any, ...]]:
    return query(
        "SELECT m.payload, m.host_id, m.user_id, m.attributes FROM clientmgr.outbox_message_t m"
        " JOIN clientmgr.log_counter c ON c.id = m.topic_id WHERE c.topic = %s ORDER BY m.c_offset",
        topic,
    )


async def test_messages_stand_in_the_log_as_they_were_published(
    google: Settings, customers: PubSubClient, database: Database, query: Query
) -> None:
    published = [
        Message(b'{"customerId":  7 }', attributes={"source": "crm"}),
        Message(b"\x00not JSON\xff"),
        Message(b'{"customerId": "12"}', tenant="99", key="device-1"),
        Message(b'{"customerId": [1]}'),
    ]
    await customers.publish(NAME, [to_proto(message) for message in published])
    stats = await copy(google, database)
    assert stats.copied == {NAME: 4}
    assert in_log(query) == [
        (b'{"customerId":  7 }', "7", "", {"source": "crm", **UNKNOWN}),
        (b"\x00not JSON\xff", "", "", UNKNOWN),
        (b'{"customerId": "12"}', "99", "device-1", UNKNOWN),
        (b'{"customerId": [1]}', "", "", UNKNOWN),
    ]


async def test_a_message_nested_too_deeply_to_be_read_is_copied_like_any_other(
    google: Settings, customers: PubSubClient, database: Database, query: Query
) -> None:
    nested = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b',"customerId":7}'
    await customers.publish(NAME, [to_proto(Message(nested)), to_proto(Message(b'{"customerId": 8}'))])
    assert (await copy(google, database)).copied == {NAME: 2}
    assert [(payload, host_id) for payload, host_id, _, _ in in_log(query)] == [
        (nested, ""),
        (b'{"customerId": 8}', "8"),
    ]


async def test_a_message_that_comes_again_is_not_copied_again(
    google: Settings, customers: PubSubClient, database: Database, query: Query
) -> None:
    await customers.publish(NAME, [to_proto(Message(b"%d" % n)) for n in range(5)])
    # A bridge that committed and died before it could acknowledge.
    pulled = await customers.pull(NAME, NAME, 3, 5.0)
    for delivery in pulled:
        query("INSERT INTO clientmgr.bridge_seen VALUES (%s, %s)", NAME, delivery.message.message_id)
    await customers.set_deadline(NAME, [delivery.ack_id for delivery in pulled], 0)
    stats = await copy(google, database)
    assert (stats.copied, stats.seen_before) == ({NAME: 2}, {NAME: 3})
    assert [row[0] for row in in_log(query)] == [b"3", b"4"]
    assert (await copy(google, database)).copied == {}


async def test_the_order_of_a_key_is_kept(
    google: Settings, customers: PubSubClient, database: Database, query: Query
) -> None:
    for n in range(0, 3000, 500):
        batch = [to_proto(Message(b"%d" % i, tenant=str(i % 3))) for i in range(n, n + 500)]
        await customers.publish(NAME, batch)
    await copy(google, database)
    rows = in_log(query)
    assert len(rows) == 3000
    for tenant in ("0", "1", "2"):
        numbers = [int(payload) for payload, host_id, _, _ in rows if host_id == tenant]
        assert numbers == sorted(numbers)


async def test_it_goes_on_until_it_is_stopped_and_can_copy_to_another_name(
    google: Settings, customers: PubSubClient, database: Database, query: Query
) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(bridge.run(google, database, stop, routes={NAME: "elsewhere"}))
    for n in range(3):
        await customers.publish(NAME, [to_proto(Message(b"%d" % n))])
        await until(lambda n=n: len(in_log(query, "elsewhere")) == n + 1, "the copy")  # type: ignore[misc]
    stop.set()
    assert (await asyncio.wait_for(running, 10)).copied == {NAME: 3}


async def test_all_missing_subscriptions_are_named(
    google: Settings, customers: PubSubClient, database: Database
) -> None:
    with pytest.raises(MissingResourcesError, match="subscription one, subscription two"):
        await copy(google, database, routes={"one": "one", NAME: NAME, "two": "two"})


async def test_a_topic_is_not_copied_onto_itself(google: Settings, database: Database) -> None:
    own = google.model_copy(update={"pubsub_project": "client-manager"})
    client = PubSubClient(own)
    await client.open()
    await client.create_topic(Topic(name=client.topic_path(NAME)))
    await client.create_subscription(Subscription(name=client.subscription_path(NAME), topic=client.topic_path(NAME)))
    await client.close()
    with pytest.raises(PermanentError, match="would grow for ever"):
        await copy(own, database)


async def test_what_was_copied_long_ago_is_forgotten(
    google: Settings, customers: PubSubClient, database: Database, query: Query
) -> None:
    query("INSERT INTO clientmgr.bridge_seen VALUES ('s', 'old', now() - interval '9 days'), ('s', 'new', now())")
    await customers.publish(NAME, [to_proto(Message(b"1"))])
    await copy(google, database)
    assert query("SELECT message_id FROM clientmgr.bridge_seen WHERE subscription = 's'") == [("new",)]


def test_routes_are_names_or_pairs() -> None:
    assert bridge.parse_routes(["one", "two=three"]) == {"one": "one", "two": "three"}
    for wrong in ([], ["no good"], ["one=a/b"], ["one=two", "one=three"]):
        with pytest.raises(InvalidInputError):
            bridge.parse_routes(wrong)
