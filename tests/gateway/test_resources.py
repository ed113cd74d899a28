"""Topics and subscriptions through Google's client: their life, their limits, and the calls that there are none of."""

import uuid
from collections.abc import Callable
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
        {"filter": f'attributes.a = "{"b" * 256}"'},
        {"retry_policy": {"maximum_backoff": {"seconds": 601}}},
        {"expiration_policy": {"ttl": {"seconds": 86_399}}},
        {"expiration_policy": {"ttl": {}}},
        {"labels": {"Team": "push"}},
        {"labels": {"1st": "push"}},
        {"labels": {"": "push"}},
        {"labels": {"team": "Push"}},
        {"labels": {"team": "a b"}},
        {"labels": {"t" * 64: "push"}},
        {"labels": {"team": "p" * 64}},
        {"labels": {"é" * 63 + "x": ""}},
        {"labels": {f"l{n}": "" for n in range(65)}},
    ],
)
def test_a_value_out_of_range_is_an_invalid_argument(clients: Clients, options: dict[str, Any]) -> None:
    with pytest.raises(exceptions.InvalidArgument):
        clients.subscription(clients.topic(), **options)


@pytest.mark.parametrize("labels", [{"Team": "push"}, {"team": "Push"}])
def test_bad_labels_are_refused_wherever_there_are_labels(clients: Clients, labels: dict[str, str]) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    calls: list[Callable[[], object]] = [
        lambda: clients.topic(labels=labels),
        lambda: clients.publisher.update_topic(
            request={"topic": {"name": topic, "labels": labels}, "update_mask": {"paths": ["labels"]}}
        ),
        lambda: clients.subscriber.update_subscription(
            request={"subscription": {"name": subscription, "labels": labels}, "update_mask": {"paths": ["labels"]}}
        ),
        lambda: clients.subscriber.create_snapshot(
            request={"name": f"projects/{PROJECT}/snapshots/labelled", "subscription": subscription, "labels": labels}
        ),
    ]
    for call in calls:
        with pytest.raises(exceptions.InvalidArgument, match="labels"):
            call()


def test_labels_may_be_of_any_language(clients: Clients) -> None:
    labels = {"größe": "", "日本": "東京-1_x", "a": "0"}
    assert dict(clients.publisher.get_topic(request={"topic": clients.topic(labels=labels)}).labels) == labels


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


@pytest.mark.parametrize("name", ["iam", "push", "modify_push", "bigquery", "schema", "ingestion", "transform"])
def test_what_the_gateway_does_not_do_it_says_so(clients: Clients, name: str) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    push = {"push_endpoint": "https://example.com/push"}
    calls: dict[str, Callable[[], object]] = {
        "iam": lambda: clients.publisher.get_iam_policy(request={"resource": topic}),
        "push": lambda: clients.subscription(topic, push_config=push),
        "modify_push": lambda: clients.subscriber.modify_push_config(
            request={"subscription": subscription, "push_config": push}
        ),
        "bigquery": lambda: clients.subscription(topic, bigquery_config={"table": "project.dataset.table"}),
        "schema": lambda: clients.topic(schema_settings={"schema": f"projects/{PROJECT}/schemas/one"}),
        "ingestion": lambda: clients.topic(ingestion_data_source_settings={"cloud_storage": {"bucket": "b"}}),
        "transform": lambda: clients.topic(message_transforms=[{"javascript_udf": {"function_name": "f"}}]),
    }
    with pytest.raises(exceptions.MethodNotImplemented, match="not supported by this Pub/Sub gateway"):
        calls[name]()


def test_settings_that_change_nothing_here_are_taken_and_shown_again(clients: Clients) -> None:
    key = f"projects/{PROJECT}/locations/global/keyRings/r/cryptoKeys/k"
    topic = clients.topic(
        kms_key_name=key,
        message_storage_policy={"allowed_persistence_regions": ["europe-west1"]},
        ingestion_data_source_settings={},
        message_transforms=[{"javascript_udf": {"function_name": "f"}, "disabled": True}],
    )
    shown = clients.publisher.get_topic(request={"topic": topic})
    assert shown.kms_key_name == key
    assert list(shown.message_storage_policy.allowed_persistence_regions) == ["europe-west1"]
    a_day = {"ttl": duration_pb2.Duration(seconds=86_400)}
    subscription = clients.subscription(topic, expiration_policy=a_day, push_config={}, bigquery_config={})
    described = clients.subscriber.get_subscription(request={"subscription": subscription})
    assert described.expiration_policy.ttl.total_seconds() == 86_400
    clients.subscriber.modify_push_config(request={"subscription": subscription, "push_config": {}})
    clients.subscriber.modify_push_config(
        request={"subscription": subscription, "push_config": {"attributes": {"x-goog-version": "v1"}}}
    )


def test_to_have_nothing_pushed_needs_a_subscription(clients: Clients) -> None:
    with pytest.raises(exceptions.NotFound):
        clients.subscriber.modify_push_config(
            request={"subscription": f"projects/{PROJECT}/subscriptions/nobodys", "push_config": {}}
        )


def test_there_are_no_schemas_and_none_can_be_made(clients: Clients) -> None:
    schemas = SchemaServiceClient(
        transport=SchemaServiceClient.get_transport_class("grpc")(channel=clients.publisher.transport.grpc_channel)
    )
    assert list(schemas.list_schemas(request={"parent": f"projects/{PROJECT}"})) == []
    with pytest.raises(exceptions.MethodNotImplemented, match="not supported by this Pub/Sub gateway"):
        schemas.create_schema(request={"parent": f"projects/{PROJECT}", "schema_id": "one", "schema": {}})
