"""Subscriptions that are detached from their topics: they are shown as such, have nothing, and get nothing."""

from collections.abc import Callable

import pytest
from google.api_core import exceptions

from tests.gateway.conftest import Clients, RawStream


def detach(clients: Clients, subscription: str) -> None:
    clients.publisher.detach_subscription(request={"subscription": subscription})


def test_a_detached_subscription_is_shown_and_delivers_nothing(clients: Clients) -> None:
    topic = clients.topic()
    subscription, other = clients.subscription(topic), clients.subscription(topic)
    clients.publish(topic, b"backlog")
    detach(clients, subscription)
    detach(clients, subscription)  # and that is all there is to it
    assert clients.subscriber.get_subscription(request={"subscription": subscription}).detached
    assert not clients.subscriber.get_subscription(request={"subscription": other}).detached
    assert list(clients.publisher.list_topic_subscriptions(request={"topic": topic})) == [other]
    with pytest.raises(exceptions.FailedPrecondition, match="detached"):
        clients.pull(subscription)
    with pytest.raises(exceptions.FailedPrecondition, match="detached"):
        clients.subscriber.seek(request={"subscription": subscription, "time": "2020-01-01T00:00:00Z"})
    assert clients.bodies(other) == [b"backlog"]
    clients.subscriber.delete_subscription(request={"subscription": subscription})


def test_an_open_stream_of_a_detached_subscription_ends(
    clients: Clients, open_stream: Callable[..., RawStream]
) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    stream = open_stream(subscription)
    clients.publish(topic, b"1")
    stream.messages(1)
    detach(clients, subscription)
    with pytest.raises(exceptions.FailedPrecondition, match="detached"):
        stream.next()


def test_nobody_can_detach_what_does_not_exist(clients: Clients) -> None:
    with pytest.raises(exceptions.NotFound):
        detach(clients, "projects/client-manager/subscriptions/nobodys")
