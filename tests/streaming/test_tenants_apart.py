"""A tenant that is locked or broken holds up nobody else, and its events arrive when the cause is gone."""

import asyncio
import time

import pytest

from clientmgr.base.database import Role
from streaming import republisher, writer
from streaming.runtime.daemon import consume_on
from tests.streaming.rig import Rig, event, until

pytestmark = pytest.mark.anyio


async def test_a_locked_tenant_does_not_hold_up_the_others(rig: Rig) -> None:
    rig.activate(8, 9)
    with rig.database.connect(Role.OWNER) as locking:
        locking.execute("LOCK TABLE tenant_8.devices IN ACCESS EXCLUSIVE MODE")
        await rig.publish(*(event(customer=customer, client=f"c{n}") for n in range(5) for customer in (7, 8, 9)))
        await rig.burst(writer.DAEMON)

        assert [len(rig.devices(customer)) for customer in (7, 9)] == [5, 5]
        assert {(retry.event["customerId"], retry.attributes["retryCount"]) for retry in rig.retries} == {(8, "1")}
        assert len(rig.retries) == 5

    rig.make_due()
    await rig.burst(republisher.DAEMON)
    assert len(rig.devices(8)) == 5
    assert rig.errors == []


async def test_a_tenant_in_anothers_hands_is_waited_for_only_so_long(rig: Rig) -> None:
    with rig.database.connect(Role.OWNER) as locking:
        # As a writer that hangs in the middle of its batch would hold it.
        locking.execute("SELECT pg_advisory_xact_lock(-7)")
        await rig.publish(event())
        started = time.monotonic()
        await rig.burst(writer.DAEMON)

    assert [retry.attributes["retryCount"] for retry in rig.retries] == ["1"]
    assert time.monotonic() - started < 20


async def test_everything_arrives_by_itself_once_the_lock_is_gone(rig: Rig) -> None:
    stop = asyncio.Event()
    daemons = [
        asyncio.create_task(consume_on(rig.broker, daemon, rig.settings, stop))
        for daemon in (writer.DAEMON, republisher.DAEMON)
    ]
    with rig.database.connect(Role.OWNER) as locking:
        locking.execute("LOCK TABLE tenant_7.devices IN ACCESS EXCLUSIVE MODE")
        await rig.publish(*(event(client=f"c{n}") for n in range(5)))
        await until(lambda: len(rig.retries) >= 5, "the writer handed the events over")
    await until(lambda: len(rig.devices()) == 5, "the republisher wrote the events")
    stop.set()
    await asyncio.gather(*daemons)

    assert rig.errors == []


async def test_a_dropped_column_sends_a_tenants_events_to_the_retries_until_it_is_back(rig: Rig) -> None:
    rig.activate(8)
    rig.query("ALTER TABLE tenant_7.devices RENAME COLUMN timezone TO lost")
    await rig.publish(*(event(customer=customer, client=f"c{n}") for n in range(50) for customer in (7, 8)))
    await rig.burst(writer.DAEMON)

    assert len(rig.devices(8)) == 50
    assert {(retry.event["customerId"], retry.attributes["retryCount"]) for retry in rig.retries} == {(7, "1")}
    assert (len(rig.retries), rig.errors) == (50, [])

    rig.query("ALTER TABLE tenant_7.devices RENAME COLUMN lost TO timezone")
    rig.make_due()
    await rig.burst(republisher.DAEMON)
    assert len(rig.devices(7)) == 50


async def test_a_tenant_that_is_deleted_while_its_events_wait_is_a_permanent_error(rig: Rig) -> None:
    rig.query("ALTER TABLE tenant_7.devices RENAME TO lost")
    await rig.publish(event())
    await rig.burst(writer.DAEMON)
    rig.query("ALTER TABLE tenant_7.lost RENAME TO devices")
    rig.delete(7)
    rig.make_due()
    await rig.burst(republisher.DAEMON)

    assert [error.attributes["errorClass"] for error in rig.errors] == ["UnknownTenantError"]
    assert [error.attributes["retryCount"] for error in rig.errors] == ["1"]
