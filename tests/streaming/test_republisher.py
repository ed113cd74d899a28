"""The republisher: five tries with growing waits, then the errors. Whoever waits holds up nobody; counts outlive it."""

from datetime import UTC, datetime

import pytest

from clientmgr.broker.interface import ReceivedMessage
from clientmgr.contracts import topics
from streaming import republisher, writer
from streaming.republisher import due_at, retry_count
from tests.streaming.rig import Rig, event

pytestmark = pytest.mark.anyio


async def test_five_retries_and_then_the_errors(rig: Rig) -> None:
    rig.query("ALTER TABLE tenant_7.devices RENAME TO lost")
    (body,) = await rig.publish(event(), trace="x")
    await rig.burst(writer.DAEMON)
    for _ in range(6):
        rig.make_due()
        await rig.burst(republisher.DAEMON)

    assert [retry.attributes["retryCount"] for retry in rig.retries] == ["1", "2", "3", "4", "5"]
    assert {retry.data for retry in rig.retries} == {body}
    (error,) = rig.errors
    assert error.data == body
    assert (error.attributes["retryCount"], error.attributes["errorClass"]) == ("5", "UndefinedTable")
    assert error.attributes["trace"] == "x"
    assert "devices" in error.attributes["error"]


async def test_a_retry_that_is_not_due_holds_up_nobody(rig: Rig) -> None:
    # The fifth retry waits for up to 16 s, the first for at most one.
    await rig.publish(*(event(client=f"late-{n}") for n in range(10)), topic=topics.REPUBLISHER, retryCount="5")
    await rig.publish(event(client="now"), topic=topics.REPUBLISHER, retryCount="1")
    rig.query("UPDATE clientmgr.outbox_message_t SET published_at = now() + interval '1 minute'")
    rig.query(
        "UPDATE clientmgr.outbox_message_t SET published_at = now() - interval '1 minute'"
        " WHERE attributes ->> 'retryCount' = '1'"
    )
    await rig.burst(republisher.DAEMON)
    assert rig.devices().keys() == {"now"}

    rig.make_due()
    await rig.burst(republisher.DAEMON)
    assert len(rig.devices()) == 11
    assert rig.errors == []


async def test_counts_survive_a_restart(rig: Rig) -> None:
    rig.query("ALTER TABLE tenant_7.devices RENAME TO lost")
    await rig.publish(event(), topic=topics.REPUBLISHER, retryCount="4")
    rig.make_due()
    await rig.burst(republisher.DAEMON)  # a run of its own: nothing is left in memory
    rig.make_due()
    await rig.burst(republisher.DAEMON)

    assert [retry.attributes["retryCount"] for retry in rig.retries] == ["4", "5"]
    assert [error.attributes["retryCount"] for error in rig.errors] == ["5"]


@pytest.mark.parametrize(
    ("text", "count"),
    [("1", 1), ("5", 5), ("0", 1), ("6", 5), ("99999999999999999999", 5), ("-1", 1), ("", 1), ("two", 1), ("٣", 1)],
)
async def test_a_count_that_nobody_of_us_wrote_is_the_first_or_the_last(text: str, count: int) -> None:
    assert retry_count(received(retryCount=text)) == count


async def test_a_message_without_a_count_is_at_its_first_retry() -> None:
    assert retry_count(received()) == 1


@pytest.mark.parametrize(("count", "longest_s"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16)])
async def test_waits_double_and_are_spread_by_full_jitter(count: int, longest_s: float) -> None:
    waits = sorted(
        due_at(received(str(number), retryCount=str(count))) - PUBLISHED.timestamp() for number in range(500)
    )
    assert 0 <= waits[0] < longest_s * 0.05
    assert longest_s * 0.95 < waits[-1] <= longest_s
    assert longest_s * 0.4 < waits[250] < longest_s * 0.6


async def test_a_messages_wait_is_the_same_each_time_it_is_asked_for() -> None:
    assert due_at(received("a")) == due_at(received("a"))
    # A restart, or a newer release, must find the same time: the figure is CRC-32 of "a" as a share of 4 seconds.
    assert due_at(received("a", retryCount="3")) - PUBLISHED.timestamp() == pytest.approx(3.6362148, abs=1e-6)


PUBLISHED = datetime(2025, 11, 16, tzinfo=UTC)


def received(message_id: str = "1", **attributes: str) -> ReceivedMessage:
    return ReceivedMessage(topics.REPUBLISHER, message_id, b"{}", "7", "", attributes, 1, PUBLISHED)
