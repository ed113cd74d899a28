"""Ordering keys, dead letters, filters, exactly-once and seek, by unary calls: no client library decides anything."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from google.api_core import exceptions

from tests.gateway.conftest import PROJECT, Clients

HOUR = {"message_retention_duration": {"seconds": 3600}}


def test_the_messages_of_a_key_come_in_order_and_none_follows_until_those_before_are_settled(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic, enable_message_ordering=True)
    clients.publish(topic, b"1", b"2", b"3", ordering_key="k")
    first = clients.pull(subscription, count=2)
    assert [one.message.data for one in first] == [b"1", b"2"]
    assert {one.message.ordering_key for one in first} == {"k"}
    assert clients.bodies(subscription, wait_s=0.6) == []
    clients.acknowledge(subscription, first[0])
    assert clients.bodies(subscription, wait_s=0.6) == []
    clients.acknowledge(subscription, first[1])
    assert clients.bodies(subscription) == [b"3"]


def test_other_keys_and_messages_without_one_do_not_wait(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic, enable_message_ordering=True)
    clients.publish(topic, b"a1", ordering_key="a")
    assert clients.bodies(subscription) == [b"a1"]
    clients.publish(topic, b"a2", ordering_key="a")
    clients.publish(topic, b"b1", ordering_key="b")
    clients.publish(topic, b"none")
    assert clients.bodies(subscription) == [b"b1", b"none"]


def test_after_a_refusal_it_and_all_behind_it_come_again_in_order(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic, enable_message_ordering=True)
    clients.publish(topic, b"1", b"2", b"3", b"4", ordering_key="k")
    one, two, three = clients.pull(subscription, count=3)
    clients.set_deadline(subscription, 0, one)
    clients.acknowledge(subscription, two)  # too late: it is to come after 1
    assert clients.bodies(subscription) == [b"1", b"2", b"3", b"4"]
    assert three.message.data == b"3"


def test_what_was_acknowledged_before_a_refusal_stays_acknowledged(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic, enable_message_ordering=True)
    clients.publish(topic, b"1", b"2", b"3", ordering_key="k")
    one, two, three = clients.pull(subscription)
    clients.acknowledge(subscription, one)
    clients.acknowledge(subscription, three)
    clients.set_deadline(subscription, 0, two)
    assert clients.bodies(subscription) == [b"2"]


def test_after_a_lease_ran_out_the_key_starts_again_where_it_ended(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic, enable_message_ordering=True)
    clients.publish(topic, b"1", b"2", ordering_key="k")
    one, two = clients.pull(subscription)
    clients.set_deadline(subscription, 60, two)
    clients.set_deadline(subscription, 1, one)
    assert clients.bodies(subscription) == [b"1", b"2"]


def test_a_key_that_rests_after_a_refusal_does_not_let_its_successors_by(clients: Clients) -> None:
    topic = clients.topic()
    policy = {"minimum_backoff": {"seconds": 1}, "maximum_backoff": {"seconds": 1}}
    subscription = clients.subscription(topic, enable_message_ordering=True, retry_policy=policy)
    clients.publish(topic, b"1", b"2", ordering_key="k")
    one, _two = clients.pull(subscription)
    clients.set_deadline(subscription, 0, one)
    clients.publish(topic, b"3", ordering_key="k")
    clients.publish(topic, b"x", ordering_key="other")
    assert clients.bodies(subscription, wait_s=0.6) == [b"x"]
    assert clients.bodies(subscription) == [b"1", b"2", b"3"]


def test_a_message_delivered_too_often_moves_to_the_dead_letter_topic(clients: Clients) -> None:
    topic, dead_topic = clients.topic(), clients.topic()
    dead = clients.subscription(dead_topic)
    policy = {"dead_letter_topic": dead_topic, "max_delivery_attempts": 5}
    subscription = clients.subscription(topic, dead_letter_policy=policy, enable_message_ordering=True)
    clients.publish(topic, b"poison", b"behind it", ordering_key="k", colour="red")
    for attempt in range(1, 6):
        received = clients.pull(subscription)
        assert [one.message.data for one in received] == [b"poison", b"behind it"]
        assert received[0].delivery_attempt == attempt
        assert received[1].delivery_attempt == 1  # taken back because of the other: that does not count
        clients.set_deadline(subscription, 0, received[0])
    (letter,) = clients.pull(dead)
    assert letter.message.data == b"poison"
    assert letter.message.ordering_key == "k"
    attributes = dict(letter.message.attributes)
    assert attributes.pop("CloudPubSubDeadLetterSourceTopicPublishTime")
    assert attributes == {
        "colour": "red",
        "CloudPubSubDeadLetterSourceDeliveryCount": "5",
        "CloudPubSubDeadLetterSourceSubscription": subscription.rpartition("/")[2],
        "CloudPubSubDeadLetterSourceSubscriptionProject": PROJECT,
    }
    assert clients.bodies(subscription) == [b"behind it"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('attributes.lang = "en"', [1, 2]),
        ('attributes.lang != "en"', [3, 4]),
        ("attributes:name", [1, 3]),
        ("NOT attributes:name", [2, 4]),
        ("-attributes:name", [2, 4]),
        ('hasPrefix(attributes.name, "co")', [1]),
        ('attributes.lang = "en" AND attributes.name = "com"', [1]),
        ('attributes.lang = "en" OR attributes.name = "net"', [1, 2, 3]),
        ('NOT (attributes.lang = "en" OR attributes:name)', [4]),
        ('attributes."x/y z" = "q\\"\\u00e9"', [4]),
        ('(attributes:lang AND (attributes:name OR attributes.lang = "de"))', [1, 3]),
    ],
)
def test_a_filter_lets_only_matching_messages_through(clients: Clients, expression: str, expected: list[int]) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic, filter=expression)
    clients.publish(topic, b"1", lang="en", name="com")
    clients.publish(topic, b"2", lang="en")
    clients.publish(topic, b"3", lang="de", name="net")
    clients.publish(topic, b"4", **{"x/y z": 'q"é'})
    assert [int(body) for body in clients.bodies(subscription)] == expected


def test_exactly_once_refuses_the_id_of_a_lease_that_is_over_and_confirms_a_repeated_one(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic, enable_exactly_once_delivery=True)
    clients.publish(topic, b"one")
    (first,) = clients.pull(subscription)
    clients.set_deadline(subscription, 1, first)
    (second,) = clients.pull(subscription)
    with pytest.raises(exceptions.FailedPrecondition) as refused:
        clients.acknowledge(subscription, first)
    (detail,) = refused.value.details
    assert detail.metadata == {first.ack_id: "PERMANENT_FAILURE_INVALID_ACK_ID"}
    with pytest.raises(exceptions.FailedPrecondition):
        clients.set_deadline(subscription, 30, first)
    clients.acknowledge(subscription, second)
    clients.acknowledge(subscription, second)  # an answer was lost, and the client asks again
    assert clients.bodies(subscription, wait_s=0.6) == []


def test_seeking_to_the_future_drops_the_backlog(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    clients.publish(topic, b"leased", b"waiting")
    clients.pull(subscription, count=1)
    clients.subscriber.seek(request={"subscription": subscription, "time": datetime.now(UTC) + timedelta(seconds=60)})
    clients.publish(topic, b"new")
    # Seeking to a time marks what was published before the call; what comes later is delivered.
    assert clients.bodies(subscription) == [b"new"]


@pytest.mark.parametrize("kept_by", ["topic", "subscription"])
def test_seeking_back_brings_acknowledged_messages_again_where_they_are_kept(clients: Clients, kept_by: str) -> None:
    topic = clients.topic(**(HOUR if kept_by == "topic" else {}))
    subscription = clients.subscription(topic, retain_acked_messages=kept_by == "subscription")
    clients.publish(topic, b"old")
    time.sleep(0.01)
    between = datetime.now(UTC)
    time.sleep(0.01)
    clients.publish(topic, b"one", b"two")
    clients.acknowledge(subscription, *clients.pull(subscription))
    clients.subscriber.seek(request={"subscription": subscription, "time": between})
    assert clients.bodies(subscription) == [b"one", b"two"]


def test_seeking_back_brings_nothing_acknowledged_where_it_is_not_kept(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    start = datetime.now(UTC)
    clients.publish(topic, b"one", b"two")
    one, two = clients.pull(subscription)
    clients.acknowledge(subscription, one)
    clients.subscriber.seek(request={"subscription": subscription, "time": start - timedelta(hours=1)})
    clients.set_deadline(subscription, 0, two)
    assert clients.bodies(subscription) == [b"two"]
