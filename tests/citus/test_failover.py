"""A lost node of the cluster costs its own tenants, which wait; a transaction that it cuts in two ends whole."""

import asyncio

import psycopg
import pytest

from clientmgr.base.database import Role
from clientmgr.base.errors import is_behind_the_database, is_transient
from streaming.republisher import DAEMON as REPUBLISHER
from streaming.writer import DAEMON as WRITER
from tests.citus.cluster import ON_CLUSTER, WHY_SKIPPED
from tests.citus.conftest import Weak
from tests.streaming.rig import NOW, Rig, event, until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not ON_CLUSTER, reason=WHY_SKIPPED),
]
TENANTS = range(1, 7)


async def write_to_all(rig: Rig, *, client: str) -> None:
    await rig.publish(*(event(customer=tenant, client=client, language="en") for tenant in TENANTS))
    await rig.burst(WRITER)


def who_has(rig: Rig, client: str) -> set[int]:
    return {tenant for tenant in TENANTS if client in rig.devices(tenant)}


@pytest.mark.parametrize("how", ["gone", "silent"])
async def test_events_of_a_lost_nodes_tenants_wait_and_the_others_are_written(
    rig: Rig, weak_node: Weak, how: str
) -> None:
    await asyncio.to_thread(rig.activate, *TENANTS)
    lost = weak_node.tenants()
    assert lost
    others = set(TENANTS) - lost
    assert others
    weak_node.proxy.lose()
    if how == "silent":
        weak_node.proxy.is_silent = True
        weak_node.proxy.come_back()

    await write_to_all(rig, client="c1")
    await rig.burst(REPUBLISHER)

    assert {tenant for tenant in others if "c1" in rig.devices(tenant)} == others
    assert rig.errors == []
    assert rig.dead_letters() == []
    assert {one.attributes["retryCount"] for one in rig.retries} == {"1"}
    assert {one.event["customerId"] for one in rig.retries} == lost

    weak_node.proxy.is_silent = False
    if how == "gone":
        weak_node.proxy.come_back()
    rig.make_due()
    await rig.burst(REPUBLISHER)

    assert who_has(rig, "c1") == set(TENANTS)


async def test_a_batch_whose_node_is_lost_before_it_commits_comes_again(rig: Rig, weak_node: Weak) -> None:
    await asyncio.to_thread(rig.activate, *TENANTS)
    weak_node.proxy.cut_before = b"PREPARE TRANSACTION"

    await rig.publish(*(event(customer=tenant, client="c1", language="en") for tenant in TENANTS))
    writing = asyncio.create_task(rig.burst(WRITER))
    await until(lambda: weak_node.proxy.cuts > 0, "the batch's commit is cut off")
    weak_node.proxy.cut_before = b""
    await writing
    rig.make_due()
    await rig.burst(REPUBLISHER)

    assert who_has(rig, "c1") == set(TENANTS)
    assert rig.errors == []
    assert rig.dead_letters() == []


@pytest.mark.parametrize("committed", [True, False])
async def test_what_a_crash_leaves_between_prepare_and_commit_ends_as_the_coordinator_did(
    rig: Rig, weak_node: Weak, committed: bool
) -> None:
    await asyncio.to_thread(rig.activate, *TENANTS)
    if committed:
        weak_node.proxy.cut_before = b"COMMIT PREPARED"
    else:
        weak_node.proxy.cut_after = b"PREPARE TRANSACTION"
    with rig.database.connect(Role.WRITER) as connection:
        for tenant in TENANTS:
            connection.execute(f"INSERT INTO tenant_{tenant}.devices (application_code, client_id) VALUES ('A', 'c1')")
        if committed:
            connection.commit()
        else:
            with pytest.raises(psycopg.Error) as refused:
                connection.commit()
            assert is_transient(refused.value)
            assert is_behind_the_database(refused.value)
    assert weak_node.prepared() == 1

    weak_node.proxy.cut_before = weak_node.proxy.cut_after = b""
    weak_node.recover()

    assert weak_node.prepared() == 0
    assert who_has(rig, "c1") == (set(TENANTS) if committed else set())


@pytest.mark.parametrize("how_long", ["shortly", "longer than the lock timeout"])
async def test_an_event_waits_for_what_a_crash_left_between_prepare_and_commit(
    rig: Rig, weak_node: Weak, how_long: str
) -> None:
    await asyncio.to_thread(rig.activate, *TENANTS)
    tenant = min(weak_node.tenants())
    await rig.publish(event(customer=tenant, language="en", at=NOW))
    weak_node.proxy.cut_before = b"COMMIT PREPARED"
    await rig.burst(WRITER)
    assert weak_node.prepared() == 1
    weak_node.proxy.cut_before = b""

    await rig.publish(event(customer=tenant, language="de", at=NOW - 1000))
    if how_long == "shortly":
        writing = asyncio.create_task(rig.burst(WRITER, writer_lock_timeout_ms=60_000))
        await until(weak_node.waiting, "the writer waits for the older transaction")
        weak_node.recover()
        await writing
    else:
        await rig.burst(WRITER, writer_lock_timeout_ms=100)
        assert [one.attributes["retryCount"] for one in rig.retries] == ["1"]
        weak_node.recover()
        rig.make_due()
        await rig.burst(REPUBLISHER)

    assert rig.devices(tenant)["c1"]["language"] == "en"
    assert rig.errors == []
    assert rig.dead_letters() == []
