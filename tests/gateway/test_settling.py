"""Acknowledgements and longer deadlines wait for no claim, and what comes in time counts, however slow we are."""

import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from clientmgr.base.database import Database, Role
from clientmgr.broker.gateway.leases import AckId
from tests.gateway.conftest import Clients

EXPIRE = "UPDATE clientmgr.gateway_deliveries SET lease_until = now(), available_at = now() WHERE subscription_id = %s"
CLAIM = "SELECT count(*) FROM clientmgr.gateway_claim(%s, 100, 1000000, 7, '1 minute', NULL, %s)"
CLAIM_OFFSETS = "SELECT c_offset FROM clientmgr.gateway_claim(%s, 5, 1000000, %s, '1 minute', NULL, '{}')"
END = (0, 0)
ACKNOWLEDGE = "SELECT nth, in_use FROM clientmgr.gateway_acknowledge(%s, %s, %s, %s, %s, %s)"


@pytest.fixture
def session(gateway_database: Database) -> Iterator[Callable[[], psycopg.Connection[Any]]]:
    """Sessions of somebody who works on the same database, as another gateway does."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(gateway_database.connect(Role.WRITER))


def _id(received: Any) -> AckId:
    return AckId.parse(received.ack_id)


def _acknowledge(
    connection: psycopg.Connection[Any], name: str, ack_id: AckId, *, age: float = 0.0, patient: bool = False
) -> list[tuple[int, bool]]:
    arguments = (name, [ack_id.subscription_id], [ack_id.offset], [ack_id.lease], [age], patient)
    return connection.execute(ACKNOWLEDGE, arguments).fetchall()


def test_acknowledgements_and_deadlines_do_not_wait_for_a_claim(
    clients: Clients, session: Callable[[], psycopg.Connection[Any]]
) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic, enable_message_ordering=True)
    clients.publish(topic, b"1", b"2", ordering_key="k")
    clients.publish(topic, b"3", ordering_key="l")
    first, second, other = clients.pull(subscription, count=3)
    claiming = session()
    clients.publish(topic, b"4", ordering_key="k")
    assert claiming.execute(CLAIM, (subscription, [])).fetchone() == (0,)  # "4" waits behind the others of its key
    # The claim's transaction stays open: it holds the subscription's lock.
    clients.set_deadline(subscription, 60, first)
    clients.acknowledge(subscription, first, other)
    clients.acknowledge(subscription, second)
    assert claiming.execute("SELECT count(*) FROM clientmgr.gateway_freed_keys").fetchone() != (0,)
    claiming.commit()
    # What the claim had put behind them is let go, although the acknowledgements could not see it.
    assert clients.bodies(subscription) == [b"4"]


def test_a_message_that_is_being_claimed_again_is_acknowledged_after_the_claim_or_not_at_all(
    clients: Clients, session: Callable[[], psycopg.Connection[Any]]
) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic)
    clients.publish(topic, b"1", b"2")
    expired, held = clients.pull(subscription)
    name, one, two = subscription, _id(expired), _id(held)
    claiming, settling = session(), session()
    claiming.execute(EXPIRE + " AND c_offset = %s", (one.subscription_id, one.offset))
    claiming.commit()
    assert claiming.execute(CLAIM, (name, [])).fetchone() == (1,)
    assert _acknowledge(settling, name, one) == [(1, True)]  # at once: ask again
    assert _acknowledge(settling, name, two) == [(1, False)]
    settling.commit()
    claiming.rollback()
    assert _acknowledge(settling, name, one, patient=True) == [(1, False)]
    settling.commit()
    assert clients.bodies(subscription, wait_s=1) == []


def test_what_is_about_to_be_acknowledged_is_not_claimed_again(
    clients: Clients, session: Callable[[], psycopg.Connection[Any]]
) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic, enable_message_ordering=True)
    clients.publish(topic, b"1", b"2", b"3", ordering_key="k")
    received = [_id(one) for one in clients.pull(subscription)]
    first, second, third = received
    connection = session()
    connection.execute(EXPIRE, (first.subscription_id,))
    # All are due again, but the second is in a gateway's hands: the first goes alone, and the third waits behind.
    assert connection.execute(CLAIM, (subscription, [second.offset])).fetchone() == (1,)
    assert _acknowledge(connection, subscription, second) == [(1, False)]
    left = "SELECT c_offset, lease FROM clientmgr.gateway_deliveries WHERE subscription_id = %s ORDER BY 1"
    assert connection.execute(left, (first.subscription_id,)).fetchall() == [(first.offset, 7), (third.offset, 0)]
    connection.rollback()


@pytest.mark.parametrize(("age", "counts"), [(0.0, False), (30.0, True)])
def test_an_acknowledgement_that_came_in_time_counts_where_nothing_may_come_twice(
    clients: Clients, session: Callable[[], psycopg.Connection[Any]], age: float, counts: bool
) -> None:
    topic = clients.topic()
    subscription = clients.subscription(topic, enable_exactly_once_delivery=True)
    clients.publish(topic, b"1")
    (received,) = clients.pull(subscription)
    connection = session()
    connection.execute(EXPIRE, (_id(received).subscription_id,))
    assert _acknowledge(connection, subscription, _id(received), age=age) == ([(1, False)] if counts else [])
    connection.rollback()


def test_claims_and_acknowledgements_at_once_leave_no_message_of_a_key_behind(
    clients: Clients, session: Callable[[], psycopg.Connection[Any]]
) -> None:
    """One session claims, one acknowledges, without any order between them."""
    topic = clients.topic()
    subscription = clients.subscription(topic, enable_message_ordering=True)
    for key in "abc":
        clients.publish(topic, *[b"x"] * 40, ordering_key=key)
    claiming, settling = session(), session()
    claiming.autocommit = settling.autocommit = True
    of_name = "SELECT id FROM clientmgr.gateway_subscriptions WHERE name = %s"
    (own,) = claiming.execute(of_name, (subscription,)).fetchone() or (0,)
    claimed: queue.Queue[tuple[int, int]] = queue.Queue()
    seen: list[int] = []

    def acknowledge() -> None:
        while (one := claimed.get()) != END:
            assert _acknowledge(settling, subscription, AckId(own, *one)) in ([(1, False)], [(1, True)])

    thread = threading.Thread(target=acknowledge)
    thread.start()
    give_up_at = time.monotonic() + 60
    for lease in itertools.count(1):
        rows = claiming.execute(CLAIM_OFFSETS, (subscription, lease)).fetchall()
        seen += [offset for (offset,) in rows]
        for (offset,) in rows:
            claimed.put((offset, lease))
        if len(seen) >= 120 or time.monotonic() > give_up_at:
            break
    claimed.put(END)
    thread.join()
    assert len(seen) == len(set(seen)) == 120
