"""A backlog on few ordering keys: what waits must not make the rest slow, whatever the planner believes."""

import time

from google.pubsub_v1 import PublisherClient

from tests.gateway.conftest import Clients


def test_a_busy_key_with_thousands_behind_it_neither_stops_nor_slows_the_others(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic, enable_message_ordering=True, ack_deadline_seconds=600)
    for start in range(0, 6000, 1000):
        messages = [
            {"data": f"{n}".encode(), "ordering_key": "busy" if n % 3 else f"{n % 20}"}
            for n in range(start, start + 1000)
        ]
        PublisherClient.publish(clients.publisher, request={"topic": topic, "messages": messages})
    started = time.monotonic()
    first = clients.pull(subscription, count=100)
    in_hand = [one for one in first if one.message.ordering_key == "busy"]
    received = [one for one in first if one not in in_hand]
    others: list[int] = []
    while len(others) < 2000:
        others += [int(one.message.data) for one in received]
        clients.acknowledge(subscription, *received)
        received = clients.pull(subscription, count=100) if len(others) < 2000 else []
    # Enough calls for PostgreSQL to go over to plans that it makes once and keeps. With a join planned for an empty
    # table, one of them took ten seconds.
    assert time.monotonic() - started < 40
    for key in range(20):
        of_key = [n for n in others if n % 20 == key]
        assert of_key == sorted(of_key)
    clients.acknowledge(subscription, *in_hand)
    (following, *_) = clients.pull(subscription, count=1)
    assert int(following.message.data) == int(in_hand[-1].message.data) + 2  # 3n + 1, 3n + 2, 3n + 4
