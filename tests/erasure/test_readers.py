"""Whoever has not read a message yet reads an erased one; our own readers pass it."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.api_core.exceptions import InvalidArgument

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.broker import bridge
from clientmgr.broker.erased import ERASED_ATTRIBUTE
from clientmgr.broker.gateway.server import Gateway
from clientmgr.broker.interface import Broker, Message, Retry
from clientmgr.broker.message_metrics import ERASED_PASSED
from clientmgr.broker.postgres.cursor_reader import CursorReader
from clientmgr.operations.maintenance import run_maintenance
from tests.broker.conftest import TRANSPORTS
from tests.broker.recording import Recorder, drain, until
from tests.erasure.deleting import TOPIC, Erasing
from tests.gateway.conftest import PROJECT, Clients, clients_of  # noqa: F401  # a fixture
from tests.streaming.rig import event

pytestmark = pytest.mark.anyio

SUBSCRIPTION = "reader"


def about(contact: int, number: int) -> Message:
    return Message(json.dumps({"customerId": 7, "contactId": contact, "n": number}).encode(), "7", str(contact))


def numbers(recorder: Recorder) -> list[int]:
    return [json.loads(one.data)["n"] for one in recorder.messages]


def passed() -> float:
    return float(ERASED_PASSED._value.get())


@pytest.mark.parametrize("transport", list(TRANSPORTS))
async def test_no_handler_gets_an_erased_message_whatever_the_transport(erasing: Erasing, transport: str) -> None:
    async with TRANSPORTS[transport](erasing.database, erasing.settings) as broker:
        await broker.ensure_topic(TOPIC)
        await broker.ensure_subscription(SUBSCRIPTION, TOPIC)
        await broker.publish(TOPIC, [about(42, 1), about(43, 2), about(42, 3)])
        erasing.delete_contact(42)
        erasing.sweep()
        before = passed()

        recorder, stats = await drain(broker, subscription=SUBSCRIPTION)

        assert numbers(recorder) == [2]
        assert (stats.done, stats.dead, stats.retried) == (1, 0, 0)
        assert passed() == before + 2
        assert numbers((await drain(broker, subscription=SUBSCRIPTION))[0]) == []


@pytest.mark.parametrize("transport", list(TRANSPORTS))
async def test_a_retry_that_is_erased_while_it_waits_is_not_handled(erasing: Erasing, transport: str) -> None:
    async with TRANSPORTS[transport](erasing.database, erasing.settings) as broker:
        await broker.ensure_topic(TOPIC)
        await broker.ensure_subscription(SUBSCRIPTION, TOPIC)
        await broker.publish(TOPIC, [about(42, 1), about(43, 2)])
        await drain(broker, Recorder(lambda _: Retry(3600)), subscription=SUBSCRIPTION)
        erasing.delete_contact(42)
        erasing.sweep()
        erasing.make_due()

        recorder, _ = await drain(broker, subscription=SUBSCRIPTION)

        assert numbers(recorder) == [2]
        assert erasing.query("SELECT FROM clientmgr.pubsub_delayed") == []
        assert erasing.query("SELECT FROM clientmgr.delayed_message_t") == []


async def test_a_sensors_cursor_goes_past_erased_messages(erasing: Erasing) -> None:
    for number, contact in enumerate((42, 42, 43, 42, 42, 42)):
        await erasing.put_into_log(TOPIC, about(contact, number))
    erasing.delete_contact(42)
    erasing.sweep()

    def read(cursor: str | None) -> list[int]:
        with CursorReader(erasing.database, erasing.settings, TOPIC) as reader:
            return [one.c_offset for one in reader.read(cursor, 2)]

    assert await asyncio.to_thread(read, None) == [3]
    assert await asyncio.to_thread(read, "3") == []
    assert erasing.query("SELECT DISTINCT next_offset FROM clientmgr.consumer_offsets") == [(7,)]


async def test_the_bridge_leaves_erased_messages_behind(erasing: Erasing) -> None:
    async with TRANSPORTS["pubsub"](erasing.database, erasing.settings) as broker:
        await broker.ensure_topic("outside")
        await broker.ensure_subscription("to-copy", "outside")
        await broker.publish("outside", [about(42, 1), about(43, 2)])
        erasing.delete_contact(42)
        erasing.sweep()
        settings = erasing.settings.model_copy(update={"pubsub_emulator_host": _emulator(broker)})
        routes = {"to-copy": "inside"}
        await bridge.run(settings, erasing.database, asyncio.Event(), routes=routes, burst=True, burst_quiet_s=0.2)

    assert [one.event["n"] for one in erasing.topic("inside")] == [2]


def _emulator(broker: Broker) -> str:
    settings: Settings = vars(broker)["_settings"]
    return settings.pubsub_emulator_host


async def test_a_new_gateway_subscription_that_seeks_back_reads_erased_messages(
    erasing: Erasing,
    clients_of: Callable[[str], Clients],  # noqa: F811
) -> None:
    email = {"email": "anna@example.com"}
    await erasing.log(event(client="c1", hardwareId="hw-secret", attributes=email), key="c1", error="hw-secret")
    await erasing.log(event(client="c2"))
    erasing.delete_device("c1")
    erasing.sweep()
    settings = erasing.settings.model_copy(update={"pubsub_gateway_port": 0})
    async with Gateway(settings, erasing.database) as gateway:
        clients = clients_of(gateway.address)

        def read_all() -> list[Any]:
            subscription = clients.subscription(clients.publisher.topic_path(PROJECT, TOPIC))
            back = datetime.now(UTC) - timedelta(days=1)
            clients.subscriber.seek(request={"subscription": subscription, "time": back})
            return [received.message for received in clients.pull(subscription)]

        received = await asyncio.to_thread(read_all)
        erased, other = sorted(received, key=lambda message: int(message.message_id))
        assert json.loads(erased.data) == {"erased": True, "customerId": 7}
        assert list(erased.attributes) == [ERASED_ATTRIBUTE]
        assert json.loads(other.data)["clientId"] == "c2"
        with pytest.raises(InvalidArgument, match="set by us alone"):
            await asyncio.to_thread(
                clients.publish, clients.publisher.topic_path(PROJECT, TOPIC), b"x", **{ERASED_ATTRIBUTE: "1"}
            )


async def test_a_persons_ordering_key_goes_with_the_message_and_holds_up_nobody(
    erasing: Erasing,
    clients_of: Callable[[str], Clients],  # noqa: F811
) -> None:
    settings = erasing.settings.model_copy(update={"pubsub_gateway_port": 0})
    async with Gateway(settings, erasing.database) as gateway:
        clients = clients_of(gateway.address)

        def publish() -> str:
            topic = clients.topic()
            subscription = clients.subscription(topic, enable_message_ordering=True)
            for contact in (42, 43):
                data = json.dumps({"customerId": 7, "contactId": contact}).encode()
                clients.publish(topic, data, ordering_key="anna@example.com")
            assert len(clients.pull(subscription)) == 2  # and it keeps them in hand
            return subscription

        subscription = await asyncio.to_thread(publish)
        erasing.delete_contact(42)
        erasing.sweep()

        keys = erasing.query(
            "SELECT ordering_key, available_at = 'infinity' FROM clientmgr.gateway_deliveries ORDER BY 1"
        )
        assert keys == [("", False), ("anna@example.com", False)]
        assert [
            row[0] for row in erasing.query("SELECT host_id FROM clientmgr.outbox_message_t ORDER BY c_offset")
        ] == [
            "",
            "anna@example.com",
        ]
        assert subscription


async def test_whoever_looks_after_the_log_sweeps(
    erasing: Erasing, database: Database, settings_for: Callable[[Database], Settings]
) -> None:
    await erasing.log({"customerId": 7, "contactId": 42})
    erasing.delete_contact(42)
    settings = settings_for(database).model_copy(update={"erasure_sweep_minutes": 0.0001})
    maintenance = asyncio.create_task(run_maintenance(settings, database, erasure_look_every_s=0.05))
    try:
        await until(lambda: "erased" in erasing.payloads()[0], "the sweep")
    finally:
        maintenance.cancel()
        await asyncio.gather(maintenance, return_exceptions=True)
