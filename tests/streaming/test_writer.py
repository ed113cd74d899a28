"""The writer: all seven types of event become what the contracts say, and nothing else happens to them."""

import pytest

from streaming import republisher, writer
from tests.citus.cluster import ON_CLUSTER
from tests.streaming.rig import NOW, Rig, event, until

pytestmark = pytest.mark.anyio


async def test_a_registration_fills_the_device_it_names(rig: Rig) -> None:
    await rig.publish(event("registered", platform="ios", language="fr-CA", pushEnabled=True, attributes={"vip": True}))
    await rig.burst(writer.DAEMON)

    device = rig.devices()["c1"]
    assert (device["platform"], device["language"], device["push_enabled"]) == ("ios", "fr-CA", True)
    assert device["attributes"] == {"vip": True}
    assert device["last_seen_at"].timestamp() == pytest.approx(NOW / 1000)


async def test_each_type_of_event_changes_its_own_part_of_the_device(rig: Rig) -> None:
    await rig.publish(
        event("registered", at=NOW, platform="android", language="en", osVersion="15"),
        event("updated", at=NOW + 1, language="de", osVersion=None),
        event("pushTokenSet", at=NOW + 2, kind="fcm_fid", pushToken="t1"),
        event("contactLinked", at=NOW + 3, contactId=42),
        event("pushTokenSet", client="c2", at=NOW, kind="apns", pushToken="t2"),
        event("pushTokenCleared", client="c2", at=NOW + 1),
        event("contactLinked", client="c2", at=NOW, contactId=42),
        event("contactUnlinked", client="c2", at=NOW + 1),
        event("registered", client="c3"),
        event("deleted", client="c3", at=NOW + 1),
    )
    await rig.burst(writer.DAEMON)

    devices = rig.devices()
    assert devices.keys() == {"c1", "c2"}
    assert [devices["c1"][name] for name in ("platform", "language", "os_version")] == ["android", "de", None]
    assert (devices["c1"]["push_token"], devices["c1"]["provider"], devices["c1"]["contact_id"]) == ("t1", "fcm", 42)
    assert (devices["c2"]["push_token"], devices["c2"]["push_token_status"]) == (None, "none")
    assert (devices["c2"]["contact_id"], devices["c2"]["orphaned_since"].timestamp()) == (None, (NOW + 1) / 1000)
    assert rig.errors == rig.retries == []


async def test_an_unknown_extra_field_is_kept_out_of_the_way(rig: Rig) -> None:
    extended = event("updated", language="en", batteryLevel=3) | {"traceId": "x\0y"}
    await rig.publish(extended)
    await rig.burst(writer.DAEMON)

    assert rig.devices()["c1"]["language"] == "en"
    assert rig.errors == []


async def test_the_newest_claim_has_the_token_also_across_batches_and_late(rig: Rig) -> None:
    await rig.publish(event("pushTokenSet", client="new", at=NOW + 9, kind="fcm_token", pushToken="t"))
    await rig.burst(writer.DAEMON)
    await rig.publish(event("pushTokenSet", client="old", at=NOW, kind="fcm_token", pushToken="t"))
    await rig.burst(writer.DAEMON)

    devices = rig.devices()
    assert (devices["new"]["push_token"], devices["new"]["push_token_status"]) == ("t", "valid")
    assert (devices["old"]["push_token"], devices["old"]["push_token_status"]) == (None, "superseded")


async def test_a_batch_of_many_tenants_reaches_each_of_them(rig: Rig) -> None:
    rig.activate(*range(8, 28))
    await rig.publish(*(event(customer=customer, language=f"l{customer}") for customer in range(7, 28)))
    stats = await rig.burst(writer.DAEMON)

    assert stats.done == 21
    assert [rig.devices(customer)["c1"]["language"] for customer in range(7, 28)] == [f"l{n}" for n in range(7, 28)]


async def test_events_of_a_customer_that_was_never_activated_are_errors_and_create_nothing(rig: Rig) -> None:
    (body,) = await rig.publish(event(customer=99))
    await rig.burst(writer.DAEMON)

    (error,) = rig.errors
    assert error.data == body
    assert error.attributes["errorClass"] == "UnknownTenantError"
    assert "99" in error.attributes["error"]
    assert error.attributes["retryCount"] == "0"
    assert rig.query("SELECT FROM pg_namespace WHERE nspname = 'tenant_99'") == []


async def test_events_of_a_deleted_customer_are_errors_and_create_nothing(rig: Rig) -> None:
    rig.delete(7)
    await rig.publish(event())
    await rig.burst(writer.DAEMON)

    assert [error.attributes["errorClass"] for error in rig.errors] == ["UnknownTenantError"]
    assert rig.query("SELECT FROM pg_namespace WHERE nspname = 'tenant_7'") == []


async def test_events_of_a_customer_that_is_being_activated_wait_with_the_republisher(rig: Rig) -> None:
    rig.query("UPDATE clientmgr.tenants SET status = 'activating' WHERE customer_id = 7")
    (body,) = await rig.publish(event(language="en"), trace="abc")
    await rig.burst(writer.DAEMON)

    (retry,) = rig.retries
    assert (retry.data, retry.tenant) == (body, "7")
    assert retry.attributes == {"retryCount": "1", "trace": "abc"}
    assert rig.errors == []

    rig.query("UPDATE clientmgr.tenants SET status = 'active' WHERE customer_id = 7")
    rig.make_due()
    await rig.burst(republisher.DAEMON)
    assert rig.devices()["c1"]["language"] == "en"
    assert len(rig.retries) == 1


async def test_a_schema_that_vanished_under_a_tenant_called_active_is_no_reason_to_make_one(rig: Rig) -> None:
    rig.query('DROP SCHEMA "tenant_7" CASCADE')
    await rig.publish(event())
    await rig.burst(writer.DAEMON)

    assert [retry.attributes["retryCount"] for retry in rig.retries] == ["1"]
    assert rig.query("SELECT FROM pg_namespace WHERE nspname = 'tenant_7'") == []


def inserted_and_looked_at(rig: Rig) -> list[int]:
    """Rows of tenant 7's tombstones, wherever they are."""
    counted = r"""SELECT ARRAY[sum(n_tup_ins), sum(seq_tup_read + coalesce(idx_tup_fetch, 0))]::bigint []::text
        FROM pg_stat_user_tables WHERE schemaname = 'tenant_7' AND relname ~ '^device_tombstones(_\d+)?$'"""
    asked = f"SELECT result FROM run_command_on_all_nodes($sql${counted}$sql$)" if ON_CLUSTER else counted
    found = [[int(one) for one in row[0].strip("{}").split(",")] for row in rig.query(asked)]
    return [sum(of_nodes) for of_nodes in zip(*found, strict=True)]


async def test_what_a_batch_costs_does_not_grow_with_a_table_that_was_empty_when_it_was_planned_for(rig: Rig) -> None:
    rig.query("VACUUM ANALYZE tenant_7.device_tombstones")
    deletions = [event("deleted", client=f"c{number}") for number in range(800)]
    await rig.publish(*deletions)
    await rig.burst(writer.DAEMON, writer_batch_size=20)

    await until(lambda: inserted_and_looked_at(rig)[0] == len(deletions), "the server has counted")
    # From end to end for each of forty batches, it would be sixteen thousand.
    assert inserted_and_looked_at(rig)[1] <= len(deletions)
