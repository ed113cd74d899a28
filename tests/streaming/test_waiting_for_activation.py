"""Events behind an activation survive: waiting for it is no attempt, and an unknown customer has its grace."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database
from clientmgr.base.errors import TenantUnavailableError, UnknownTenantError
from clientmgr.base.settings import Settings
from clientmgr.broker.factory import open_broker
from clientmgr.broker.interface import Message, ReceivedMessage
from clientmgr.contracts import topics
from streaming import contact_deletion, push_token_status, republisher, writer
from streaming.push_token_status import TokenType
from streaming.runtime.awaited_tenants import unknown_tenant, wait_for_tenant
from streaming.runtime.daemon import Daemon, consume_on
from tests.gateway.process import GatewayProcess
from tests.streaming.conftest import IMPATIENT
from tests.streaming.processes import worker
from tests.streaming.rig import NOW, Rig, event, until

pytestmark = pytest.mark.anyio

NEW = 42
"""A customer that nobody has activated yet."""
PATIENT = {"unknown_tenant_grace_s": 120.0}
VERDICTS = push_token_status.daemon(TokenType.PUSH)

PUT_ASIDE = """
    SELECT reason, not_before > clock_timestamp(), attempts FROM clientmgr.delayed_message_t
    UNION ALL SELECT reason, not_before > clock_timestamp(), attempts FROM clientmgr.pubsub_delayed"""
IN_AN_HOUR = """
    UPDATE clientmgr.delayed_message_t SET not_before = clock_timestamp() + interval '1 hour';
    UPDATE clientmgr.pubsub_delayed SET not_before = clock_timestamp() + interval '1 hour';"""


def activation(customer: int = NEW, *, at: int = NOW) -> dict[str, Any]:
    return {"eventId": f"a-{customer}-{at}", "customerId": customer, "occurredAt": at}


def account_deletion(customer: int = NEW, *, at: int = NOW) -> dict[str, Any]:
    return activation(customer, at=at) | {"requestedBy": "test"}


def contact_deleted(contact: int = 5) -> dict[str, Any]:
    return {"eventId": "d", "customerId": NEW, "contactId": contact, "deletedAt": NOW + 5}


def verdict() -> dict[str, Any]:
    known = event(customer=NEW) | {"pushToken": "t1", "status": "invalid", "occurredAt": NOW + 5}
    return {name: value for name, value in known.items() if name not in ("eventType", "payload")}


def waiting(rig: Rig) -> list[tuple[str, bool, int]]:
    """What was put aside: why, whether its time is still to come, attempts so far."""
    return rig.query(PUT_ASIDE)


def all_wait(rig: Rig, count: int) -> bool:
    found = waiting(rig)
    return len(found) == count and all(reason.startswith("waits:") and later for reason, later, _ in found)


@asynccontextmanager
async def running(rig: Rig, *daemons: Daemon, **overrides: Any) -> AsyncIterator[None]:
    stop = asyncio.Event()
    settings = rig.settings.model_copy(update=overrides)
    tasks = [asyncio.create_task(consume_on(rig.broker, daemon, settings, stop)) for daemon in daemons]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)


async def test_events_right_behind_an_activation_message_survive_however_late_the_activation_is(rig: Rig) -> None:
    await rig.publish(activation(), topic=topics.ACTIVATE_CUSTOMER)
    async with running(rig, writer.DAEMON, republisher.DAEMON):
        await rig.publish(*(event(customer=NEW, client=f"c{n}") for n in range(20)))
        await until(lambda: all_wait(rig, 20), "all wait")
        for _ in range(7):  # each time they are an hour older: far beyond five retries and every grace
            rig.make_due()
            await until(lambda: all_wait(rig, 20), "all wait on")
        # Whatever time they would have come at: the activation has them delivered.
        rig.query(IN_AN_HOUR)
        rig.activate(NEW)
        await until(lambda: len(rig.devices(NEW)) == 20, "all are written")

    assert rig.errors == []
    assert rig.dead_letters() == []
    assert [retry.attributes for retry in rig.retries] == [{"retryCount": "1"}] * 20


async def test_an_activation_that_has_begun_is_waited_for_and_costs_no_retry(rig: Rig) -> None:
    rig.query(f"INSERT INTO clientmgr.tenants (customer_id, status) VALUES ({NEW}, 'activating')")
    await rig.publish(event(customer=NEW), topic=topics.REPUBLISHER, retryCount="4")
    for _ in range(8):
        rig.make_due()
        await rig.burst(republisher.DAEMON)
    assert all_wait(rig, 1)
    assert [attempts for _, _, attempts in waiting(rig)] == [0]

    rig.activate(NEW)
    rig.query(f"ALTER TABLE tenant_{NEW}.devices RENAME TO lost")
    for _ in range(3):
        rig.make_due()
        await rig.burst(republisher.DAEMON)
    assert [retry.attributes["retryCount"] for retry in rig.retries] == ["4", "5"]
    assert [error.attributes["retryCount"] for error in rig.errors] == ["5"]


async def test_who_waits_holds_up_nobody_and_is_counted_as_put_off_and_not_as_retried(rig: Rig) -> None:
    labels = {"topic": topics.REPUBLISHER, "subscription": topics.REPUBLISHER}

    def counted(name: str) -> float:
        return REGISTRY.get_sample_value(f"clientmgr_messages_{name}_total", labels) or 0.0

    before = {name: counted(name) for name in ("retried", "put_off")}
    await rig.publish(activation(), topic=topics.ACTIVATE_CUSTOMER)
    await rig.publish(event(customer=NEW), event(client="of 7"), topic=topics.REPUBLISHER, retryCount="1")
    rig.make_due()
    await rig.burst(republisher.DAEMON)

    assert rig.devices(7).keys() == {"of 7"}
    assert counted("retried") == before["retried"]
    assert counted("put_off") == before["put_off"] + 1
    assert waiting(rig)[0][0] == f"waits: customer {NEW} is still being activated"


@pytest.mark.parametrize(
    ("messages", "waits"),
    [
        ([(topics.ACTIVATE_CUSTOMER, activation())], True),
        ([(topics.ACTIVATE_CUSTOMER, activation(43))], False),
        ([(topics.ACTIVATE_CUSTOMER, activation() | {"occurredAt": "today"})], False),
        ([(topics.ACTIVATE_CUSTOMER, activation() | {"eventId": ""})], False),
        ([(topics.ACTIVATE_CUSTOMER, activation(at=4_000_000_000_000))], False),
        ([(topics.ACTIVATE_CUSTOMER, activation()), (topics.ACCOUNT_DELETION, account_deletion(at=NOW + 1))], False),
        ([(topics.ACCOUNT_DELETION, account_deletion(at=NOW + 1)), (topics.ACTIVATE_CUSTOMER, activation())], False),
        ([(topics.ACTIVATE_CUSTOMER, activation()), (topics.ACCOUNT_DELETION, account_deletion())], False),
        ([(topics.ACTIVATE_CUSTOMER, activation()), (topics.ACCOUNT_DELETION, account_deletion(at=NOW - 1))], True),
        (
            [
                (topics.ACTIVATE_CUSTOMER, activation()),
                (topics.ACTIVATE_CUSTOMER, activation(at=NOW + 2)),
                (topics.ACCOUNT_DELETION, account_deletion(at=NOW + 1)),
            ],
            True,
        ),
        ([(topics.ACTIVATE_CUSTOMER, b'{"customerId": 42'), (topics.ACTIVATE_CUSTOMER, activation())], True),
    ],
)
async def test_what_counts_is_the_newest_request_in_the_log_that_can_be_understood(
    rig: Rig, messages: list[tuple[str, dict[str, Any] | bytes]], waits: bool
) -> None:
    for topic, message in messages:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        await rig.put_into_log(topic, Message(body))
    await rig.publish(event(customer=NEW))
    await rig.burst(writer.DAEMON)

    assert (len(rig.retries), len(rig.errors)) == ((1, 0) if waits else (0, 1))


async def test_events_of_a_deleted_customer_wait_only_if_it_is_wanted_back(rig: Rig) -> None:
    rig.activate(NEW)
    rig.delete(NEW)
    await rig.publish(event(customer=NEW, client="too late"))
    await rig.publish(activation(at=NOW), topic=topics.ACTIVATE_CUSTOMER)  # older than the deletion
    await rig.burst(writer.DAEMON, **PATIENT)
    assert [error.event["clientId"] for error in rig.errors] == ["too late"]
    assert rig.errors[0].attributes["retryCount"] == "0"

    ((deleted_ms,),) = rig.query("SELECT (extract(epoch FROM asked_at) * 1000)::bigint FROM clientmgr.tenant_wishes"
                                 f" WHERE customer_id = {NEW}")  # fmt: skip
    await rig.publish(activation(at=deleted_ms + 1000), topic=topics.ACTIVATE_CUSTOMER)
    await rig.publish(event(customer=NEW, client="back"))
    await rig.burst(writer.DAEMON)
    assert [retry.event["clientId"] for retry in rig.retries] == ["back"]

    rig.activate(NEW)
    rig.make_due()
    await rig.burst(republisher.DAEMON)
    assert rig.devices(NEW).keys() == {"back"}
    assert len(rig.errors) == 1


async def test_events_wait_for_a_customer_who_is_wanted_back_while_its_deletion_is_under_way(rig: Rig) -> None:
    rig.query("UPDATE clientmgr.tenants SET status = 'deleting' WHERE customer_id = 7")
    await rig.publish(event())
    await rig.burst(writer.DAEMON)
    assert (len(rig.retries), len(rig.errors)) == (1, 0)

    rig.query("UPDATE clientmgr.tenant_wishes SET wish = 'deleted' WHERE customer_id = 7")
    await rig.publish(event())
    await rig.burst(writer.DAEMON)
    assert (len(rig.retries), len(rig.errors)) == (1, 1)


async def test_events_of_an_unknown_customer_are_written_if_it_is_activated_within_the_grace(rig: Rig) -> None:
    async with running(rig, writer.DAEMON, republisher.DAEMON, **PATIENT):
        # Without an ordering key, as many publish.
        await rig.put_into_log(
            topics.WRITER, Message(json.dumps(event(customer=NEW)).encode(), attributes={"trace": "x"})
        )
        await until(lambda: all_wait(rig, 1), "it waits")
        rig.activate(NEW)
        await until(lambda: rig.devices(NEW), "it is written")
    (retry,) = rig.retries
    assert retry.attributes.keys() == {"retryCount", "firstPublishedAt", "trace"}
    assert retry.attributes["retryCount"] == "1"
    assert rig.errors == []


async def test_events_of_an_unknown_customer_are_errors_when_the_grace_has_passed_and_not_before(rig: Rig) -> None:
    async with running(rig, writer.DAEMON, republisher.DAEMON, unknown_tenant_grace_s=1.5):
        (body,) = await rig.publish(event(customer=NEW))
        await until(lambda: rig.errors, "it is given up")

    (error,) = rig.errors
    assert (error.data, error.attributes["errorClass"], error.attributes["retryCount"]) == (
        body,
        "UnknownTenantError",
        "1",
    )
    assert error.attributes["error"] == f"customer {NEW} was never activated"
    ((waited_s,),) = rig.query(
        """SELECT extract(epoch FROM max(m.published_at) - min(m.published_at))::float8
        FROM clientmgr.outbox_message_t AS m JOIN clientmgr.log_counter AS c ON c.id = m.topic_id
        WHERE c.topic IN (%s, %s)""",
        topics.WRITER,
        topics.WRITER_ERRORS,
    )
    assert waited_s >= 1.5
    assert len(rig.retries) == 1
    assert rig.query(f"SELECT FROM pg_namespace WHERE nspname = 'tenant_{NEW}'") == []


async def test_the_grace_counts_from_the_first_publishing_over_hops_and_restarts(rig: Rig) -> None:
    await rig.publish(event(customer=NEW))
    rig.query("UPDATE clientmgr.outbox_message_t SET published_at = published_at - interval '100 seconds'")
    await rig.burst(writer.DAEMON, **PATIENT)
    for _ in range(3):  # each a run of its own, of a message that was passed on a moment ago
        rig.query("UPDATE clientmgr.delayed_message_t SET not_before = now()")
        rig.query("UPDATE clientmgr.pubsub_delayed SET not_before = now()")
        await rig.burst(republisher.DAEMON, **PATIENT)
    await until(lambda: all_wait(rig, 1), "it waits")
    assert rig.errors == []

    rig.query("UPDATE clientmgr.delayed_message_t SET not_before = now()")
    rig.query("UPDATE clientmgr.pubsub_delayed SET not_before = now()")
    await rig.burst(republisher.DAEMON, unknown_tenant_grace_s=90.0)
    assert [error.attributes["errorClass"] for error in rig.errors] == ["UnknownTenantError"]


async def test_a_first_publishing_that_somebody_else_claims_does_not_prolong_the_grace(rig: Rig) -> None:
    for claimed in ("9999999999999", "-1", "", "soon", "1" * 400, "٣"):
        await rig.publish(event(customer=NEW), topic=topics.REPUBLISHER, firstPublishedAt=claimed)
    rig.make_due()
    await rig.burst(republisher.DAEMON, **PATIENT)
    assert len(rig.errors) == 6


async def test_a_message_without_room_for_another_attribute_waits_with_the_writer(rig: Rig) -> None:
    rig.query(f"INSERT INTO clientmgr.tenants (customer_id, status) VALUES ({NEW}, 'activating')")
    await rig.publish(event(customer=NEW), **{f"a{n}": "x" for n in range(100)})
    await rig.burst(writer.DAEMON)
    assert all_wait(rig, 1)

    rig.activate(NEW)
    await rig.burst(writer.DAEMON)
    assert len(rig.devices(NEW)) == 1
    assert rig.dead_letters() == []


async def test_contact_deletions_and_verdicts_wait_for_an_activation_as_well(rig: Rig) -> None:
    await rig.publish(activation(), topic=topics.ACTIVATE_CUSTOMER)
    await rig.publish(contact_deleted(), topic=topics.CONTACT_DELETION)
    await rig.publish(verdict(), topic=topics.PUSH_TOKEN_STATUS)
    for _ in range(5):
        await rig.burst(contact_deletion.DAEMON)
        await rig.burst(VERDICTS)
        # The first may be due again by the time that the second has been put aside.
        assert [(reason[:6], attempts) for reason, _, attempts in waiting(rig)] == [("waits:", 0)] * 2
        rig.make_due()

    rig.activate(NEW)
    await rig.publish(
        event("contactLinked", customer=NEW, client="gone", contactId=5),
        event("pushTokenSet", customer=NEW, kind="fcm_token", pushToken="t1"),
    )
    await rig.burst(writer.DAEMON)
    await rig.burst(contact_deletion.DAEMON)
    await rig.burst(VERDICTS)

    assert {client: device["push_token_status"] for client, device in rig.devices(NEW).items()} == {"c1": "invalid"}
    assert (rig.topic(topics.CONTACT_DELETION_ERRORS), rig.dead_letters(), waiting(rig)) == ([], [], [])


async def test_contact_deletions_and_verdicts_for_an_unknown_customer_are_given_up_after_the_grace(rig: Rig) -> None:
    await rig.publish(contact_deleted(), topic=topics.CONTACT_DELETION)
    await rig.publish(verdict(), topic=topics.PUSH_TOKEN_STATUS)
    for daemon in (contact_deletion.DAEMON, VERDICTS):
        await rig.burst(daemon, **PATIENT)
    assert [reason[:6] for reason, _, _ in waiting(rig)] == ["waits:"] * 2
    assert (rig.topic(topics.CONTACT_DELETION_ERRORS), rig.dead_letters()) == ([], [])

    rig.make_due()
    for daemon in (contact_deletion.DAEMON, VERDICTS):
        await rig.burst(daemon, **PATIENT)
    assert [error.attributes["errorClass"] for error in rig.topic(topics.CONTACT_DELETION_ERRORS)] == [
        "UnknownTenantError"
    ]
    assert [error_class for _, error_class, _ in rig.dead_letters()] == ["UnknownTenantError"]


@pytest.fixture
async def killing_rig(
    request: pytest.FixtureRequest, anyio_backend: str, database: Database, settings_for: Any, tmp_path: Path
) -> AsyncIterator[Rig]:
    """Servers that outlive the workers, which are processes of their own here."""
    settings: Settings = settings_for(database).model_copy(update={**IMPATIENT, "broker": request.param})
    gateway = GatewayProcess(database, tmp_path / "gateway.log", poll_ms=100)
    gateway.start()
    try:
        settings = settings.model_copy(update={"pubsub_emulator_host": gateway.address, "pubsub_ack_deadline_s": 10})
        async with open_broker(settings, database) as broker:
            yield Rig(settings, database, broker)
    finally:
        gateway.stop()


@pytest.mark.parametrize("killing_rig", ["postgres", "pubsub"], indirect=True)
async def test_a_republisher_that_is_killed_while_messages_wait_loses_none_and_doubles_none(
    killing_rig: Rig, tmp_path: Path
) -> None:
    rig, count = killing_rig, 300
    await rig.publish(activation(), topic=topics.ACTIVATE_CUSTOMER)
    await rig.publish(*(event(customer=NEW, client=f"c{n}") for n in range(count)))
    with worker(rig.settings, tmp_path, "writer") as writing:
        await until(lambda: len(rig.retries) == count, "the writer has passed all on")
        for _ in range(3):
            with worker(rig.settings, tmp_path, "republisher") as process:
                await until(lambda: all_wait(rig, count), "all wait")
                rig.make_due()
                # Killed by leaving: at whatever it is with them at this moment.
                await until(lambda: not all_wait(rig, count) or not process.running, "it has some of them in hand")
        rig.activate(NEW)
        with worker(rig.settings, tmp_path, "republisher"):
            await until(lambda: len(rig.devices(NEW)) == count and not waiting(rig), "all are written")
        assert writing.running

    assert len(rig.retries) == count
    assert (rig.errors, rig.dead_letters()) == ([], [])


@pytest.mark.parametrize(("waited_s", "least_s", "most_s"), [(0, 1.25, 2.5), (40, 20, 40), (86_400, 150, 300)])
async def test_looks_at_an_activation_under_way_become_rarer(waited_s: float, least_s: float, most_s: float) -> None:
    delays = [wait_for_tenant(received(waited_s), TenantUnavailableError("…")).delay_s for _ in range(200)]
    assert least_s - 0.1 <= min(delays) < max(delays) <= most_s + 0.1


async def test_a_message_for_an_unknown_customer_is_looked_at_a_few_times_and_at_the_end_of_its_grace() -> None:
    left_s, looks = 120.0, 0
    while left_s > 0.02:
        message = received(120.0 - left_s)
        error = unknown_tenant(CustomerId(NEW), message, 120.0)
        assert isinstance(error, TenantUnavailableError)
        delay_s = wait_for_tenant(message, error).delay_s
        assert 0 < delay_s <= left_s + 0.02
        left_s, looks = left_s - delay_s, looks + 1
    assert looks <= 6
    assert isinstance(unknown_tenant(CustomerId(NEW), received(120.0), 120.0), UnknownTenantError)


def received(age_s: float) -> ReceivedMessage:
    published_at = datetime.now(UTC) - timedelta(seconds=age_s)
    return ReceivedMessage(topics.REPUBLISHER, "1", b"{}", "", "", {}, 1, published_at)
