"""StreamingPull: through the high-level client's callbacks, and raw where its own cleverness would be in the way."""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.subscriber.exceptions import AcknowledgeError, AcknowledgeStatus
from google.cloud.pubsub_v1.subscriber.message import Message

from tests.gateway.conftest import POLL_S, Clients, RawStream


class Listener:
    """A callback that notes what it sees and treats each message as the test says."""

    def __init__(self, clients: Clients, subscription: str, treat: Callable[[Message], object], **flow: Any) -> None:
        self.seen: list[bytes] = []
        self._treat = treat
        self._changed = threading.Condition()
        control = pubsub_v1.types.FlowControl(**flow)
        self.future = clients.subscriber.subscribe(subscription, self._receive, flow_control=control)

    def wait_for(self, count: int) -> list[bytes]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.seen) >= count, timeout=30), self.seen
            return list(self.seen)

    def stop(self) -> None:
        self.future.cancel()
        self.future.result(timeout=30)

    def _receive(self, message: Message) -> None:
        # Noted last: a test that stops as soon as it has seen enough must not cut off an acknowledgement.
        self._treat(message)
        with self._changed:
            self.seen.append(message.data)
            self._changed.notify_all()


def test_a_subscriber_gets_every_message_once_and_what_it_acknowledged_is_gone(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    bodies = [f"{n}".encode() for n in range(500)]
    clients.publish(topic, *bodies[:250])
    listener = Listener(clients, subscription, Message.ack)
    clients.publish(topic, *bodies[250:])
    assert sorted(listener.wait_for(500)) == sorted(bodies)
    listener.stop()
    assert clients.bodies(subscription, wait_s=0.6) == []


def test_a_message_published_while_a_stream_waits_arrives_at_once(clients: Clients) -> None:
    topic = clients.topic()
    listener = Listener(clients, clients.subscription(topic), Message.ack)
    delays = []
    for n in range(10):
        started = time.monotonic()
        clients.publish(topic, b"x")
        listener.wait_for(n + 1)
        delays.append(time.monotonic() - started)
    listener.stop()
    assert max(delays) < POLL_S / 2  # woken, not polled


def test_the_callbacks_of_an_ordering_key_run_in_order_also_after_a_refusal(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic, enable_message_ordering=True)
    bodies = [f"{n}".encode() for n in range(20)]
    refused: list[bytes] = []

    def refuse_7_once(message: Message) -> None:
        if message.data == b"7" and not refused:
            refused.append(message.data)
            message.nack()
        else:
            message.ack()

    clients.publish(topic, *bodies, ordering_key="k")
    listener = Listener(clients, subscription, refuse_7_once)
    deadline = time.monotonic() + 30
    # The client may have run those after 7 before the refusal arrived: they come again, after 7.
    while listener.seen.count(b"7") < 2 or listener.seen[-13:] != bodies[7:]:
        assert time.monotonic() < deadline, listener.seen
        time.sleep(0.02)
    listener.stop()
    assert listener.seen[:8] == bodies[:8]
    assert clients.bodies(subscription, wait_s=0.6) == []


def test_exactly_once_acknowledgements_are_confirmed_and_late_ones_refused(clients: Clients) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic, enable_exactly_once_delivery=True)
    futures: queue.Queue[tuple[Message, Future[AcknowledgeStatus]]] = queue.Queue()
    listener = Listener(clients, subscription, lambda message: futures.put((message, message.ack_with_response())))
    clients.publish(topic, b"one")
    message, future = futures.get(timeout=30)
    assert future.result(timeout=30) == AcknowledgeStatus.SUCCESS
    listener.stop()

    clients.publish(topic, b"two")
    late: queue.Queue[Message] = queue.Queue()
    listener = Listener(clients, subscription, late.put)
    message = late.get(timeout=30)
    clients.subscriber.modify_ack_deadline(  # behind the client's back
        request={"subscription": subscription, "ack_ids": [message.ack_id], "ack_deadline_seconds": 0}
    )
    with pytest.raises(AcknowledgeError) as refused:
        message.ack_with_response().result(timeout=30)
    assert refused.value.error_code == AcknowledgeStatus.INVALID_ACK_ID
    late.get(timeout=30).ack_with_response().result(timeout=30)
    listener.stop()


def test_a_stream_confirms_acknowledgements_of_an_exactly_once_subscription(
    clients: Clients, open_stream: Callable[..., RawStream]
) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic, enable_exactly_once_delivery=True)
    clients.publish(topic, b"one", b"two")
    stream = open_stream(subscription)
    one, two = stream.messages(2)
    stream.send(modify_deadline_ack_ids=[two.ack_id], modify_deadline_seconds=[0])
    assert list(stream.next().modify_ack_deadline_confirmation.ack_ids) == [two.ack_id]
    (again,) = stream.messages(1)
    stream.send(ack_ids=[one.ack_id, two.ack_id, again.ack_id])
    response = stream.next()
    assert list(response.acknowledge_confirmation.ack_ids) == [one.ack_id, again.ack_id]
    assert list(response.acknowledge_confirmation.invalid_ack_ids) == [two.ack_id]
    assert response.subscription_properties.exactly_once_delivery_enabled


@pytest.mark.parametrize("seconds", [[30, 0, 60], [30, 60, 1]])
def test_of_several_deadlines_for_a_delivery_giving_it_back_wins_and_else_the_last(
    clients: Clients, open_stream: Callable[..., RawStream], seconds: list[int]
) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic, enable_exactly_once_delivery=True)
    clients.publish(topic, b"one")
    stream = open_stream(subscription)
    (one,) = stream.messages(1)
    ack_ids = [one.ack_id] * 3
    asked_at = time.monotonic()
    stream.send(modify_deadline_ack_ids=ack_ids, modify_deadline_seconds=seconds)
    assert list(stream.next().modify_ack_deadline_confirmation.ack_ids) == ack_ids
    assert len(stream.messages(1)) == 1
    assert time.monotonic() - asked_at < 20


def test_a_client_that_asks_whether_its_stream_lives_is_answered(
    clients: Clients, open_stream: Callable[..., RawStream]
) -> None:
    subscription = clients.subscription(clients.topic(), enable_exactly_once_delivery=True)
    stream = open_stream(subscription, protocol_version=1)
    for _ in range(2):
        stream.send()
        response = stream.next()
        assert not response.received_messages
        # Clients read the subscription's properties from every response.
        assert response.subscription_properties.exactly_once_delivery_enabled


def test_a_client_of_the_first_protocol_hears_nothing_but_messages(
    clients: Clients, open_stream: Callable[..., RawStream]
) -> None:
    topic = clients.topic()
    stream = open_stream(clients.subscription(topic))
    stream.send()
    clients.publish(topic, b"one")
    assert [received.message.data for received in stream.next().received_messages] == [b"one"]


def test_a_stream_sends_no_more_than_its_client_asked_for(
    clients: Clients, open_stream: Callable[..., RawStream]
) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    clients.publish(topic, *[b"x" * 100] * 10)
    by_count = open_stream(subscription, max_outstanding_messages=3)
    three = by_count.messages(3)
    by_bytes = open_stream(subscription, max_outstanding_bytes=150)
    two = by_bytes.messages(2)
    # Both are full. A third one gets the rest: nothing more has gone to the first two.
    rest = clients.pull(subscription)
    assert len(three) + len(two) + len(rest) == 10
    # An acknowledgement on the stream and one by a call of its own both make room.
    clients.set_deadline(subscription, 0, *rest)
    by_count.send(ack_ids=[three[0].ack_id])
    assert len(by_count.messages(1)) == 1
    clients.acknowledge(subscription, three[1])
    assert len(by_count.messages(1)) == 1


def test_the_leases_of_a_closed_stream_are_free_at_once(
    clients: Clients, open_stream: Callable[..., RawStream]
) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic, enable_message_ordering=True)
    clients.publish(topic, b"1", b"2", ordering_key="k")
    clients.publish(topic, b"3")
    stream = open_stream(subscription)
    assert len(stream.messages(3)) == 3
    assert clients.bodies(subscription, wait_s=0.6) == []
    closed_at = time.monotonic()
    stream.cut()
    assert clients.bodies(subscription) == [b"1", b"2", b"3"]
    assert time.monotonic() - closed_at < 5  # not the 60 seconds of the lease


def test_the_stream_of_a_deleted_subscription_ends_with_not_found(
    clients: Clients, open_stream: Callable[..., RawStream]
) -> None:
    subscription = clients.subscription(clients.topic())
    stream = open_stream(subscription)
    clients.subscriber.delete_subscription(request={"subscription": subscription})
    with pytest.raises(exceptions.NotFound):
        stream.next()


@pytest.mark.parametrize(
    "wrong",
    [
        {"ack_ids": ["nonsense"]},
        {"modify_deadline_ack_ids": ["x"], "modify_deadline_seconds": []},
        {"max_outstanding_messages": 5},
        {"protocol_version": 1},
    ],
)
def test_a_wrong_request_ends_the_stream(
    clients: Clients, open_stream: Callable[..., RawStream], wrong: dict[str, Any]
) -> None:
    stream = open_stream(clients.subscription(clients.topic()))
    stream.send(**wrong)
    with pytest.raises(exceptions.InvalidArgument):
        stream.next()


def test_subscribing_to_nothing_fails_and_says_so(clients: Clients) -> None:
    listener = Listener(clients, "projects/client-manager/subscriptions/nobodys", Message.ack)
    with pytest.raises(exceptions.NotFound):
        listener.future.result(timeout=30)
