"""Ack ids belong to one subscription: another's are refused, by every way to send them."""

from collections.abc import Callable

import pytest
from google.api_core import exceptions

from tests.gateway.conftest import Clients, RawStream

refused = pytest.raises(exceptions.InvalidArgument, match="ack ID of another subscription")


def test_an_ack_id_of_another_subscription_is_refused(clients: Clients, open_stream: Callable[..., RawStream]) -> None:
    topic = clients.topic()
    subscription, other = clients.subscription(topic), clients.subscription(topic)
    clients.publish(topic, b"1")
    (received,) = clients.pull(subscription)
    (own,) = clients.pull(other)
    with refused:
        clients.acknowledge(other, received)
    with refused:
        clients.acknowledge(other, own, received)
    with refused:
        clients.set_deadline(other, 30, received)
    for fields in (
        {"ack_ids": [received.ack_id]},
        {"modify_deadline_ack_ids": [received.ack_id], "modify_deadline_seconds": [0]},
    ):
        stream = open_stream(other)
        stream.send(**fields)
        with refused:
            while True:
                stream.next()
    clients.acknowledge(subscription, received)
    clients.acknowledge(other, own)


def test_an_ack_id_from_before_a_subscription_was_made_anew_is_refused(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    clients.publish(topic, b"1")
    (received,) = clients.pull(subscription)
    clients.subscriber.delete_subscription(request={"subscription": subscription})
    clients.subscriber.create_subscription(request={"name": subscription, "topic": topic})
    clients.publish(topic, b"2")
    with refused:
        clients.acknowledge(subscription, received)
    assert clients.bodies(subscription) == [b"2"]


def test_a_stream_takes_no_deadline_out_of_range_later_either(
    clients: Clients, open_stream: Callable[..., RawStream]
) -> None:
    stream = open_stream(clients.subscription(clients.topic()))
    stream.send(stream_ack_deadline_seconds=9)
    with pytest.raises(exceptions.InvalidArgument, match="stream_ack_deadline_seconds"):
        stream.next()
