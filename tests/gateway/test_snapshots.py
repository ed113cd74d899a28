"""Snapshots through Google's client: what a subscription had not acknowledged, to go back to."""

import json
import uuid
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from google.api_core import exceptions

from clientmgr.base.database import Database, Role
from tests.gateway.conftest import PROJECT, Clients
from tests.gateway.process import GatewayProcess


def snapshot_of(clients: Clients, subscription: str, **options: object) -> str:
    name = f"projects/{PROJECT}/snapshots/snap-{uuid.uuid4().hex[:12]}"
    clients.subscriber.create_snapshot(request={"name": name, "subscription": subscription, **options})
    return name


def seek(clients: Clients, subscription: str, snapshot: str) -> None:
    clients.subscriber.seek(request={"subscription": subscription, "snapshot": snapshot})


def test_a_seek_brings_back_what_was_not_acknowledged_and_what_came_later(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    clients.publish(topic, b"done before", b"in hand", b"in hand too")
    clients.acknowledge(subscription, next(one for one in clients.pull(subscription) if b"done" in one.message.data))
    snapshot = snapshot_of(clients, subscription)
    clients.publish(topic, b"later")
    clients.acknowledge(subscription, *clients.pull(subscription))
    seek(clients, subscription, snapshot)
    again = clients.pull(subscription)
    assert sorted(one.message.data for one in again) == [b"in hand", b"in hand too", b"later"]
    clients.acknowledge(subscription, *again)
    seek(clients, subscription, snapshot)  # it is not used up
    assert len(clients.pull(subscription)) == len(again)


def test_a_snapshot_survives_a_killed_gateway_and_a_second_subscription_can_go_to_it(
    clients: Clients, gateway: GatewayProcess
) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    snapshot = snapshot_of(clients, subscription)
    clients.publish(topic, b"1", b"2")
    clients.acknowledge(subscription, *clients.pull(subscription))
    gateway.kill()
    gateway.start()
    other = clients.subscription(topic)
    seek(clients, other, snapshot)
    assert clients.bodies(other) == [b"1", b"2"]


def test_a_seek_to_a_time_brings_back_what_a_snapshot_keeps(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    clients.publish(topic, b"before")
    clients.acknowledge(subscription, *clients.pull(subscription))
    snapshot_of(clients, subscription)
    clients.publish(topic, b"1", b"2")
    received = clients.pull(subscription)
    clients.acknowledge(subscription, *received)
    clients.subscriber.seek(request={"subscription": subscription, "time": received[0].message.publish_time})
    assert clients.bodies(subscription) == [b"1", b"2"]
    clients.subscriber.seek(request={"subscription": subscription, "time": datetime(2020, 1, 1, tzinfo=UTC)})
    assert clients.bodies(subscription) == [b"1", b"2"]


def test_ordered_messages_come_back_in_order(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic, enable_message_ordering=True)
    clients.publish(topic, b"1", b"2", b"3", ordering_key="a")
    held = clients.pull(subscription)
    assert len(held) == 3
    snapshot = snapshot_of(clients, subscription)
    clients.acknowledge(subscription, *held)
    seek(clients, subscription, snapshot)
    received: list[bytes] = []
    while len(received) < 3:
        some = clients.pull(subscription, 1)
        received.extend(one.message.data for one in some)
        clients.acknowledge(subscription, *some)
    assert received == [b"1", b"2", b"3"]


def test_a_snapshot_is_shown_listed_changed_and_deleted(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    name = snapshot_of(clients, subscription, labels={"why": "test"})
    shown = clients.subscriber.get_snapshot(request={"snapshot": name})
    assert (shown.name, shown.topic, dict(shown.labels)) == (name, topic, {"why": "test"})
    assert timedelta(days=6, hours=23) < shown.expire_time - datetime.now(UTC) <= timedelta(days=7)
    assert name in [one.name for one in clients.subscriber.list_snapshots(request={"project": f"projects/{PROJECT}"})]
    assert list(clients.publisher.list_topic_snapshots(request={"topic": topic})) == [name]
    with pytest.raises(exceptions.AlreadyExists):
        clients.subscriber.create_snapshot(request={"name": name, "subscription": subscription})
    sooner = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    changed = clients.subscriber.update_snapshot(
        request={"snapshot": {"name": name, "expire_time": sooner}, "update_mask": {"paths": ["expire_time"]}}
    )
    assert (changed.expire_time, dict(changed.labels)) == (sooner, {"why": "test"})
    clients.subscriber.delete_snapshot(request={"snapshot": name})
    with pytest.raises(exceptions.NotFound):
        clients.subscriber.get_snapshot(request={"snapshot": name})
    with pytest.raises(exceptions.NotFound):
        seek(clients, subscription, name)


@pytest.mark.parametrize("end", [timedelta(seconds=-60), timedelta(days=8)])
def test_a_snapshot_ends_neither_in_the_past_nor_after_a_week(clients: Clients, end: timedelta) -> None:
    name = snapshot_of(clients, clients.subscription(clients.topic()))
    wanted = {"name": name, "expire_time": datetime.now(UTC) + end}
    with pytest.raises(exceptions.InvalidArgument, match="expire_time"):
        clients.subscriber.update_snapshot(request={"snapshot": wanted, "update_mask": {"paths": ["expire_time"]}})


def test_a_snapshot_of_another_topic_is_refused(clients: Clients) -> None:
    snapshot = snapshot_of(clients, clients.subscription(clients.topic()))
    other = clients.subscription(clients.topic())
    with pytest.raises(exceptions.InvalidArgument, match="no snapshot of the subscription's topic"):
        seek(clients, other, snapshot)


def test_the_snapshots_of_a_deleted_topic_say_so(clients: Clients) -> None:
    topic = clients.topic()
    name = snapshot_of(clients, clients.subscription(topic))
    clients.publisher.delete_topic(request={"topic": topic})
    assert clients.subscriber.get_snapshot(request={"snapshot": name}).topic == "_deleted-topic_"


def test_a_backlog_of_almost_a_week_is_too_old_for_a_snapshot(clients: Clients, gateway_database: Database) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    clients.publish(topic, b"old")
    with gateway_database.connect(Role.WRITER) as connection:
        connection.execute(
            "UPDATE clientmgr.outbox_message_t AS m SET published_at = now() - interval '6 days 23 hours 30 minutes' "
            "FROM clientmgr.gateway_topics AS t WHERE t.topic_id = m.topic_id AND t.name = %s",
            (topic,),
        )
    with pytest.raises(exceptions.FailedPrecondition, match="end within an hour"):
        snapshot_of(clients, subscription)


def test_a_snapshot_holds_offsets_and_no_customers_data(gateway_database: Database, clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    clients.publish(topic, b"contact 4711", ordering_key="somebody@example.com")
    clients.pull(subscription)
    name = snapshot_of(clients, subscription)
    with gateway_database.connect(Role.READER) as connection, connection.cursor(row_factory=psycopg.rows.dict_row) as c:
        row = c.execute("SELECT * FROM clientmgr.gateway_snapshots WHERE name = %s", (name,)).fetchone()
    assert "somebody" not in json.dumps(row, default=str)
    assert "4711" not in json.dumps(row, default=str)
