"""Publish, Pull, Acknowledge and ModifyAckDeadline through Google's client."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from google.api_core import exceptions
from google.pubsub_v1 import PublisherClient

from tests.gateway.conftest import POLL_S, Clients


def test_a_published_message_arrives_with_all_it_was_given(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    (message_id,) = clients.publish(topic, b"\x00any bytes\xff", colour="red", empty="")
    (received,) = clients.pull(subscription)
    assert received.message.data == b"\x00any bytes\xff"
    assert dict(received.message.attributes) == {"colour": "red", "empty": ""}
    assert received.message.message_id == message_id
    assert abs(received.message.publish_time.timestamp() - time.time()) < 60
    assert received.delivery_attempt == 0  # counted for subscriptions with a dead-letter policy only


def test_an_acknowledged_message_never_comes_again_and_a_refused_one_comes_at_once(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    clients.publish(topic, b"one", b"two")
    one, two = clients.pull(subscription)
    clients.acknowledge(subscription, one)
    clients.set_deadline(subscription, 0, two)
    (again,) = clients.pull(subscription)
    assert again.message.data == b"two"
    clients.acknowledge(subscription, again)
    assert clients.bodies(subscription, wait_s=0.6) == []
    clients.acknowledge(subscription, one)  # once more is no error


def test_a_message_is_nobody_elses_while_its_lease_lasts(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    clients.publish(topic, b"one")
    (leased,) = clients.pull(subscription)
    assert clients.bodies(subscription, wait_s=0.6) == []
    clients.set_deadline(subscription, 1, leased)
    assert clients.bodies(subscription, wait_s=5) == [b"one"]


def test_a_late_acknowledgement_still_counts_where_delivery_is_at_least_once(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    clients.publish(topic, b"one")
    (first,) = clients.pull(subscription)
    clients.set_deadline(subscription, 0, first)
    (second,) = clients.pull(subscription)
    clients.acknowledge(subscription, first)
    clients.set_deadline(subscription, 0, second)
    assert clients.bodies(subscription, wait_s=0.6) == []


def test_every_subscription_of_a_topic_gets_its_own_copy_from_its_creation_on(clients: Clients) -> None:
    topic = clients.topic()
    early = clients.subscription(topic)
    clients.publish(topic, b"before")
    late = clients.subscription(topic)
    clients.publish(topic, b"after")
    assert clients.bodies(early) == [b"before", b"after"]
    assert clients.bodies(late) == [b"after"]


def test_a_pull_waits_for_a_message_to_come(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(clients.bodies, subscription)
        time.sleep(0.3)
        assert not waiting.done()
        started = time.monotonic()
        clients.publish(topic, b"news")
        assert waiting.result(10) == [b"news"]
        assert time.monotonic() - started < POLL_S / 2  # woken, not polled


def test_a_refused_message_waits_as_its_retry_policy_says(clients: Clients) -> None:
    topic = clients.topic()
    policy = {"minimum_backoff": {"seconds": 1}, "maximum_backoff": {"seconds": 2}}
    subscription = clients.subscription(topic, retry_policy=policy)
    clients.publish(topic, b"one")
    (received,) = clients.pull(subscription)
    for pause_s in (1.0, 2.0, 2.0):  # doubled each time, up to the maximum
        refused_at = time.monotonic()
        clients.set_deadline(subscription, 0, received)
        (received,) = clients.pull(subscription)
        assert pause_s * 0.95 < time.monotonic() - refused_at < pause_s + POLL_S / 2


@pytest.mark.parametrize("ack_id", ["nonsense", "AAAA", "????"])
def test_a_malformed_acknowledgement_id_is_an_invalid_argument(clients: Clients, ack_id: str) -> None:
    subscription = clients.subscription(clients.topic())
    with pytest.raises(exceptions.InvalidArgument, match="invalid ack ID"):
        clients.subscriber.acknowledge(request={"subscription": subscription, "ack_ids": [ack_id]})


def test_what_google_would_not_take_is_refused(clients: Clients) -> None:
    topic = clients.topic()
    for message, reason in (
        ({}, "empty"),
        ({"data": b"x", "attributes": {"": "v"}}, "Attribute names"),
        ({"data": b"x", "attributes": {"k": "v" * 1025}}, "1024 bytes"),
        ({"data": b"x", "attributes": {"k": "\0"}}, "NUL"),
        ({"data": b"x", "attributes": {str(n): "v" for n in range(101)}}, "101 attributes"),
        ({"data": b"x", "ordering_key": "k" * 1025}, "ordering key"),
        ({"data": b"x" * 10_000_001}, "too large"),
        ({"data": b"x", "attributes": {"clientmgr-publisher": "cli:root"}}, "set by the gateway alone"),
    ):
        with pytest.raises(exceptions.InvalidArgument, match=reason):
            # Past the high-level client, which would refuse some of it by itself.
            PublisherClient.publish(clients.publisher, request={"topic": topic, "messages": [message]}, retry=None)
