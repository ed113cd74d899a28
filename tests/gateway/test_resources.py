"""Topics and subscriptions through Google's client: their life, their limits, and the calls that there are none of."""

import uuid
from typing import Any

import pytest
from google.api_core import exceptions
from google.protobuf import duration_pb2
from google.pubsub_v1 import SchemaServiceClient

from clientmgr.base.database import Database, Role
from tests.gateway.conftest import PROJECT, Clients


def test_a_topic_is_created_once_shown_listed_changed_and_deleted(clients: Clients) -> None:
    topic = clients.topic(labels={"team": "push"})
    assert dict(clients.publisher.get_topic(request={"topic": topic}).labels) == {"team": "push"}
    with pytest.raises(exceptions.AlreadyExists, match="Resource already exists"):
        clients.publisher.create_topic(request={"name": topic})
    assert topic in [one.name for one in clients.publisher.list_topics(request={"project": f"projects/{PROJECT}"})]
    changed = clients.publisher.update_topic(
        request={"topic": {"name": topic, "labels": {"team": "mail"}}, "update_mask": {"paths": ["labels"]}}
    )
    assert dict(changed.labels) == {"team": "mail"}
    clients.publisher.delete_topic(request={"topic": topic})
    with pytest.raises(exceptions.NotFound, match="Resource not found"):
        clients.publisher.get_topic(request={"topic": topic})
    with pytest.raises(exceptions.NotFound):
        clients.publish(topic, b"too late")


def test_a_topic_of_the_log_is_a_topic_of_the_project(clients: Clients, gateway_database: Database) -> None:
    short = f"made-elsewhere-{uuid.uuid4().hex[:8]}"
    with gateway_database.connect(Role.WRITER) as connection:
        connection.execute("INSERT INTO clientmgr.log_counter (topic) VALUES (%s)", (short,))
    topic = clients.publisher.topic_path(PROJECT, short)
    subscription = clients.subscription(topic)
    clients.publish(topic, b"{}")
    assert clients.bodies(subscription) == [b"{}"]
    with gateway_database.connect(Role.READER) as connection:
        query = "SELECT count(*) FROM clientmgr.outbox_message_t JOIN clientmgr.log_counter c ON c.id = topic_id"
        assert connection.execute(f"{query} WHERE c.topic = %s", (short,)).fetchone() == (1,)


def test_the_topics_of_other_projects_are_kept_apart(clients: Clients) -> None:
    short = f"shared-{uuid.uuid4().hex[:8]}"
    ours = clients.publisher.create_topic(request={"name": f"projects/{PROJECT}/topics/{short}"}).name
    theirs = clients.publisher.create_topic(request={"name": f"projects/another/topics/{short}"}).name
    subscription = clients.subscription(ours)
    clients.publish(theirs, b"theirs")
    clients.publish(ours, b"ours")
    assert clients.bodies(subscription) == [b"ours"]
    assert [one.name for one in clients.publisher.list_topics(request={"project": "projects/another"})] == [theirs]


def test_the_subscriptions_of_a_deleted_topic_keep_what_they_have_and_get_nothing_of_its_successor(
    clients: Clients,
) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    clients.publish(topic, b"of the first")
    clients.publisher.delete_topic(request={"topic": topic})
    clients.publisher.create_topic(request={"name": topic})
    clients.publish(topic, b"of the second")
    assert clients.subscriber.get_subscription(request={"subscription": subscription}).topic == "_deleted-topic_"
    (received,) = clients.pull(subscription)
    assert received.message.data == b"of the first"
    clients.acknowledge(subscription, received)
    assert clients.bodies(subscription, wait_s=0.6) == []


def test_a_subscription_shows_googles_defaults(clients: Clients) -> None:
    topic = clients.topic()
    shown = clients.subscriber.get_subscription(request={"subscription": clients.subscription(topic)})
    assert shown.topic == topic
    assert shown.ack_deadline_seconds == 10
    assert shown.message_retention_duration.total_seconds() == 7 * 86_400
    assert not shown.retry_policy
    assert not shown.enable_message_ordering


def test_a_subscription_is_created_once_listed_changed_and_deleted(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic, labels={"a": "b"})
    with pytest.raises(exceptions.AlreadyExists):
        clients.subscriber.create_subscription(request={"name": subscription, "topic": topic})
    assert list(clients.publisher.list_topic_subscriptions(request={"topic": topic})) == [subscription]
    listed = clients.subscriber.list_subscriptions(request={"project": f"projects/{PROJECT}", "page_size": 2})
    assert subscription in [one.name for one in listed]  # over several pages
    changed = clients.subscriber.update_subscription(
        request={
            "subscription": {
                "name": subscription,
                "ack_deadline_seconds": 33,
                "retry_policy": {"minimum_backoff": duration_pb2.Duration(seconds=3)},
            },
            "update_mask": {"paths": ["ack_deadline_seconds", "retry_policy"]},
        }
    )
    assert changed.ack_deadline_seconds == 33
    assert changed.retry_policy.minimum_backoff.total_seconds() == 3
    assert changed.retry_policy.maximum_backoff.total_seconds() == 600
    assert dict(changed.labels) == {"a": "b"}
    clients.subscriber.delete_subscription(request={"subscription": subscription})
    with pytest.raises(exceptions.NotFound):
        clients.pull(subscription)


def test_what_can_not_be_changed_is_refused(clients: Clients) -> None:
    subscription = clients.subscription(clients.topic())
    for path in ("filter", "enable_message_ordering", "topic", "nonsense"):
        with pytest.raises(exceptions.InvalidArgument, match="update_mask"):
            clients.subscriber.update_subscription(
                request={"subscription": {"name": subscription}, "update_mask": {"paths": [path]}}
            )


@pytest.mark.parametrize(
    "options",
    [
        {"ack_deadline_seconds": 9},
        {"ack_deadline_seconds": 601},
        {"message_retention_duration": {"seconds": 60}},
        {"retry_policy": {"minimum_backoff": {"seconds": 20}, "maximum_backoff": {"seconds": 10}}},
        {"dead_letter_policy": {"dead_letter_topic": "nonsense"}},
        {"filter": 'attributes.a = "b" AND attributes:c OR attributes:d'},
        {"filter": "attributes.a = b"},
    ],
)
def test_a_value_out_of_range_is_an_invalid_argument(clients: Clients, options: dict[str, Any]) -> None:
    with pytest.raises(exceptions.InvalidArgument):
        clients.subscription(clients.topic(), **options)


@pytest.mark.parametrize(
    "name", ["nonsense", "projects/p/topics/1st", "projects/p/topics/ab", "projects/p/topics/goog1"]
)
def test_a_wrong_name_is_an_invalid_argument(clients: Clients, name: str) -> None:
    with pytest.raises(exceptions.InvalidArgument, match="Invalid resource name"):
        clients.publisher.create_topic(request={"name": name})


def test_what_does_not_exist_is_not_found(clients: Clients) -> None:
    topic, subscription = f"projects/{PROJECT}/topics/nobodys", f"projects/{PROJECT}/subscriptions/nobodys"
    with pytest.raises(exceptions.NotFound):
        clients.publish(topic, b"x")
    with pytest.raises(exceptions.NotFound):
        clients.subscription(topic)
    with pytest.raises(exceptions.NotFound):
        clients.pull(subscription)
    with pytest.raises(exceptions.NotFound):
        clients.subscriber.delete_subscription(request={"subscription": subscription})
    with pytest.raises(exceptions.NotFound):
        clients.subscription(clients.topic(), dead_letter_policy={"dead_letter_topic": topic})


def test_what_the_gateway_does_not_do_it_says_so(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    snapshot = f"projects/{PROJECT}/snapshots/one"
    refused = pytest.raises(exceptions.MethodNotImplemented, match="not supported by this Pub/Sub gateway")
    with refused:
        clients.subscriber.create_snapshot(request={"name": snapshot, "subscription": subscription})
    with refused:
        clients.subscriber.seek(request={"subscription": subscription, "snapshot": snapshot})
    with refused:
        clients.subscription(topic, push_config={"push_endpoint": "https://example.com/push"})
    with refused:
        clients.subscription(topic, bigquery_config={"table": "project.dataset.table"})
    with refused:
        clients.topic(schema_settings={"schema": f"projects/{PROJECT}/schemas/one", "encoding": "JSON"})
    with refused:
        clients.publisher.detach_subscription(request={"subscription": subscription})
    with refused:
        clients.publisher.get_iam_policy(request={"resource": topic})


def test_schemas_are_not_supported(clients: Clients) -> None:
    schemas = SchemaServiceClient(
        transport=SchemaServiceClient.get_transport_class("grpc")(channel=clients.publisher.transport.grpc_channel)
    )
    with pytest.raises(exceptions.MethodNotImplemented, match="not supported by this Pub/Sub gateway"):
        list(schemas.list_schemas(request={"parent": f"projects/{PROJECT}"}))
