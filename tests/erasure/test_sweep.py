"""The sweep leaves nothing of what is deleted, and everything else as it was."""

import json
from typing import Any

import pytest

from clientmgr.base.database import Role
from clientmgr.broker.erased import ERASED_ATTRIBUTE
from clientmgr.broker.interface import Dead, Message, Retry
from clientmgr.erasure.sweep import SweepRunningError, sweep
from tests.broker.recording import Recorder, drain
from tests.erasure.deleting import TOPIC, Erasing
from tests.streaming.rig import NOW, event

pytestmark = pytest.mark.anyio

ERASED_OF_7 = {"erased": True, "customerId": 7}


async def test_a_message_about_a_deleted_contact_keeps_its_place_and_nothing_else(erasing: Erasing) -> None:
    await erasing.log({"customerId": 7, "contactId": 42, "email": "anna@example.com"}, key="42", error="anna says no")
    await erasing.log({"customerId": 7, "contactId": 43}, key="43", note="stays")
    before = erasing.query(
        "SELECT topic_id, partition_id, c_offset, tx_last_offset, transaction_id, published_at FROM "
        "clientmgr.outbox_message_t ORDER BY c_offset"
    )
    erasing.delete_contact(42)

    report = erasing.sweep()

    (one, other) = erasing.topic(TOPIC)
    assert one.event == ERASED_OF_7
    assert one.tenant == "7"
    assert list(one.attributes) == [ERASED_ATTRIBUTE]
    assert (other.event, other.attributes) == ({"customerId": 7, "contactId": 43}, {"note": "stays"})
    assert erasing.query("SELECT user_id FROM clientmgr.outbox_message_t ORDER BY c_offset") == [("",), ("43",)]
    assert before == erasing.query(
        "SELECT topic_id, partition_id, c_offset, tx_last_offset, transaction_id, published_at "
        "FROM clientmgr.outbox_message_t ORDER BY c_offset"
    )
    assert report.erased == {TOPIC: 1}
    assert "anna" not in erasing.dump()


async def test_what_is_deleted_after_a_sweep_is_found_by_the_next(erasing: Erasing) -> None:
    await erasing.log(event(client="c1", hardwareId="hw-1"))
    await erasing.log(event(client="c2", hardwareId="hw-2"))
    await erasing.log({"customerId": 7, "contactId": 42}, label="8")
    await erasing.log({"customerId": 7, "contactId": 42}, label="anna@example.com")
    erasing.sweep()
    erasing.delete_device("c1")
    erasing.delete_contact(42)

    report = erasing.sweep()

    assert [one.get("erased") for one in erasing.payloads()] == [True, None, True, True]
    assert report.erased == {TOPIC: 3}
    assert [one.tenant for one in erasing.topic(TOPIC)] == ["7", "7", "8", ""]
    assert erasing.sweep().erased == {}


async def test_the_planners_statistics_forget_the_deleted_too(erasing: Erasing) -> None:
    for _ in range(2):  # a value that is there once is in no statistics of a small table
        await erasing.log(event(client="a-client"), key="a-client")
    columns = "(application_code, client_id, contact_id)"
    erasing.query(f"INSERT INTO tenant_7.devices {columns} VALUES ('A', 'x', 42), ('A', 'y', 42)")
    erasing.query("ANALYZE")
    remembered = "SELECT count(*) FROM pg_stats WHERE concat(most_common_vals, histogram_bounds) ~ %s"
    assert erasing.query(remembered, "a-client") != [(0,)]
    assert erasing.query(remembered + " AND tablename = 'devices'", "42") != [(0,)]
    erasing.query("DELETE FROM tenant_7.devices")
    erasing.delete_device("a-client")
    erasing.delete_contact(42)

    erasing.sweep()

    assert erasing.query(remembered, "a-client") == [(0,)]
    assert erasing.query(remembered + " AND tablename = 'devices'", "42") == [(0,)]


async def test_a_message_that_comes_after_the_deletion_is_found_too(erasing: Erasing) -> None:
    erasing.delete_device("c1")
    erasing.sweep()
    await erasing.log(event(client="c1", at=NOW))
    await erasing.log(event(client="c1", at=NOW + 1))

    erasing.sweep()

    assert [one.get("erased") for one in erasing.payloads()] == [True, None]


async def test_a_sweep_that_finds_nothing_deleted_looks_at_new_messages_once(erasing: Erasing) -> None:
    await erasing.log(event(client="c1"))
    assert erasing.sweep().looked_at == {TOPIC: 1}
    await erasing.log(event(client="c2"))
    assert erasing.sweep().looked_at == {TOPIC: 1}
    assert erasing.sweep().looked_at == {}


async def test_dead_letters_and_retries_are_erased_with_the_reasons_that_quote_them(erasing: Erasing) -> None:
    await erasing.log({"customerId": 7, "contactId": 42, "n": 1}, label="8")
    await erasing.log({"customerId": 7, "contactId": 42, "n": 2})
    await erasing.log({"customerId": 7, "contactId": 43, "n": 3})
    await erasing.broker.ensure_subscription("reader", TOPIC)
    decide = Recorder(lambda one: Retry(3600, "anna waits") if b'"n": 2' in one.data else Dead("anna failed", "Why"))
    await drain(erasing.broker, decide, subscription="reader")
    erasing.query(
        "INSERT INTO clientmgr.pubsub_delayed (subscription, topic, not_before, message_id, attempts, host_id, user_id,"
        " payload, attributes, published_at, reason) SELECT 's', 't', now(), '1', 1, host_id, 'anna', payload,"
        " attributes, now(), 'anna again' FROM clientmgr.outbox_message_t WHERE c_offset = 1"
    )
    erasing.delete_contact(42)

    report = erasing.sweep()

    letters = erasing.dead_letters()
    assert [(json.loads(data), error, why) for data, error, why in letters] == [
        (ERASED_OF_7, "Why", ""),
        ({"customerId": 7, "contactId": 43, "n": 3}, "Why", "anna failed"),
    ]
    assert report.erased == {TOPIC: 2, "dead_letter_queue": 1, "delayed_message_t": 1, "pubsub_delayed": 1}
    assert erasing.query("SELECT reason FROM clientmgr.delayed_message_t") == [("",)]
    assert erasing.query("SELECT reason, user_id FROM clientmgr.pubsub_delayed") == [("", "")]


async def test_what_is_no_json_goes_too(erasing: Erasing) -> None:
    await erasing.log(b'{"customerId": 7, "applicationCode": "A", "clientId": "c1", "attributes": {"email": "ann')
    await erasing.log(b'\xff\x00{"customerId": 7, "contactId": 42')
    await erasing.log(b"\xff\x00 nobody knows")
    erasing.delete_device("c1", at=10**13)
    erasing.delete_contact(42)

    erasing.sweep()

    assert [one.data for one in erasing.topic(TOPIC)][2:] == [b"\xff\x00 nobody knows"]
    assert erasing.sweep().erased == {}
    assert "clientId" not in erasing.dump()


async def test_a_device_is_found_where_the_message_does_not_name_its_application(erasing: Erasing) -> None:
    await erasing.log(event(client="c1"))
    await erasing.log({"customerId": 7, "contactId": 9, "devices": [{"clientId": "c1"}], "occurredAt": NOW})
    await erasing.log({"customerId": 7, "contactId": 9, "devices": [{"clientId": "c2"}], "occurredAt": NOW})
    erasing.delete_device("c1")

    erasing.sweep()

    assert [one.get("erased") for one in erasing.payloads()] == [True, True, None]


async def test_a_token_leads_to_its_deleted_device(erasing: Erasing) -> None:
    await erasing.log({"customerId": 7, "applicationCode": "A", "pushToken": "secret", "occurredAt": NOW})
    erasing.delete_device("c1")
    erasing.claim_token("secret", "c1")

    erasing.sweep()

    assert erasing.payloads() == [ERASED_OF_7]


async def test_of_a_deleted_account_nothing_is_left_in_the_log(erasing: Erasing) -> None:
    await erasing.log(event(customer=7, client="c1", hardwareId="hw-1"), label="7")
    await erasing.log(event(customer=7, client="c1", hardwareId="hw-2"), label="8")
    await erasing.log(event(customer=7, client="c1", hardwareId="hw-3"), label="")
    await erasing.log(b'{"customerId":7,"hardwareId":"hw-4', label="nobody")
    await erasing.log(event(customer=8, client="c1", hardwareId="other"), label="7")
    erasing.sweep()
    erasing.delete(7)

    erasing.sweep()

    assert "hw-" not in erasing.dump()
    assert [one.get("erased") for one in erasing.payloads()] == [True, True, True, True, None]


async def test_of_an_account_that_is_back_the_first_life_is_erased(erasing: Erasing) -> None:
    await erasing.log(event(client="c1", hardwareId="first"))
    erasing.delete(7)
    erasing.activate(7)
    await erasing.log(event(client="c1", hardwareId="second"))

    erasing.sweep()

    assert erasing.payloads()[0] == ERASED_OF_7
    assert erasing.payloads()[1]["payload"] == {"hardwareId": "second"}


async def test_no_handler_gets_an_erased_message_and_it_counts_as_read(erasing: Erasing) -> None:
    for number in range(4):
        await erasing.log({"customerId": 7, "contactId": 42 if number % 2 else 43, "n": number})
    await erasing.broker.ensure_subscription("reader", TOPIC)
    erasing.delete_contact(42)
    erasing.sweep()

    recorder, stats = await drain(erasing.broker, subscription="reader")

    assert [json.loads(one.data)["n"] for one in recorder.messages] == [0, 2]
    assert (stats.done, stats.dead, stats.retried) == (2, 0, 0)
    assert erasing.query("SELECT count(*) FROM clientmgr.consumer_offsets WHERE next_offset = 5") == [(1,)]


async def test_nobody_can_publish_a_message_that_looks_erased(erasing: Erasing) -> None:
    await erasing.broker.ensure_topic(TOPIC)
    with pytest.raises(ValueError, match=ERASED_ATTRIBUTE):
        await erasing.broker.publish(TOPIC, [Message(b"{}", attributes={ERASED_ATTRIBUTE: "now"})])


async def test_tables_that_name_devices_forget_the_deleted_ones(erasing: Erasing) -> None:
    erasing.query(
        "INSERT INTO clientmgr.orphan_candidates VALUES (7, 'A', 'gone', now(), now()), (8, 'A', 'here', now(), now());"
        "INSERT INTO tenant_8.devices (application_code, client_id, device_hash) VALUES ('A', 'here', '\\x01')"
    )
    differences = [{"application_code": "A", "client_id": name, "difference": "x"} for name in ("gone", "other")]
    erasing.query(
        "INSERT INTO clientmgr.dashboard_tenant_metrics (customer_id, run_id, collected_at, status, sync_status,"
        " sync_differences) VALUES (7, 'r', now(), 'ok', 'differs', %s::jsonb)",
        json.dumps(differences),
    )
    erasing.delete_device("gone")

    report = erasing.sweep()

    assert erasing.query("SELECT client_id FROM clientmgr.orphan_candidates") == [("here",)]
    assert erasing.query("SELECT sync_differences FROM clientmgr.dashboard_tenant_metrics") == [
        ([{"application_code": "A", "difference": "x"}, differences[1]],)
    ]
    assert report.erased == {"orphan_candidates": 1, "dashboard_tenant_metrics": 1}


async def test_hashes_go_when_no_transport_can_bring_the_events_back(erasing: Erasing) -> None:
    erasing.delete_contact(42)
    erasing.delete_device("gone")
    erasing.claim_token("t", "gone")
    erasing.query(
        "INSERT INTO tenant_7.contact_links VALUES ('\\x01', 1, '\\xaa', 1), ('\\x01', 2, '\\xaa', 1),"
        " ('\\x01', 3, '\\xaa', 1), ('\\x01', 4, '\\xbb', 2), ('\\x02', 1, '\\xaa', 1);"
        "INSERT INTO tenant_7.devices (application_code, client_id, device_hash) VALUES ('A', 'here', '\\x01');"
        "INSERT INTO tenant_7.contact_merges (from_contact_hash, merged_version, into_contact_hash, recorded_at)"
        " VALUES ('\\xaa', 1, '\\xbb', now() - interval '60 days'), ('\\xcc', 1, '\\xbb', now() - interval '60 days');"
        "INSERT INTO tenant_7.push_token_verdicts VALUES ('\\x01', 'invalid', 1, now() - interval '91 days'),"
        " ('\\x02', 'invalid', 1, now() - interval '89 days');"
    )
    erasing.sweep()
    tables = ("contact_tombstones", "device_tombstones", "push_token_claims", "contact_links", "contact_merges")
    left: dict[str, Any] = {name: len(erasing.query(f"SELECT FROM tenant_7.{name}")) for name in tables}
    assert left == dict.fromkeys(tables, 1) | {"contact_links": 3}
    assert erasing.query("SELECT token_hash FROM tenant_7.push_token_verdicts") == [(b"\x02",)]

    for table in ("contact_tombstones", "device_tombstones"):
        erasing.query(f"UPDATE tenant_7.{table} SET recorded_at = now() - interval '46 days'")
    erasing.query("UPDATE clientmgr.erasure_sweeps SET started_at = started_at - interval '1 day'")
    erasing.sweep()

    assert erasing.query("SELECT linked_version FROM tenant_7.contact_links ORDER BY 1") == [(1,), (3,), (4,)]
    for table in ("contact_tombstones", "device_tombstones", "push_token_claims"):
        assert erasing.query(f"SELECT FROM tenant_7.{table}") == []


async def test_tombstones_stay_while_a_customer_is_imported_from_the_legacy_store(erasing: Erasing) -> None:
    erasing.delete_contact(42)
    erasing.delete_device("gone")
    tables = ("contact_tombstones", "device_tombstones")
    for table in tables:
        erasing.query(f"UPDATE tenant_7.{table} SET recorded_at = now() - interval '46 days'")
    erasing.query("INSERT INTO clientmgr.legacy_migrations VALUES (7, 'postgres with fallback', now(), 'test')")
    erasing.sweep()
    assert [len(erasing.query(f"SELECT FROM tenant_7.{table}")) for table in tables] == [1, 1]

    erasing.query("UPDATE clientmgr.legacy_migrations SET stage = 'postgres only'")
    erasing.query("UPDATE clientmgr.erasure_sweeps SET started_at = started_at - interval '1 day'")
    erasing.sweep()
    assert [len(erasing.query(f"SELECT FROM tenant_7.{table}")) for table in tables] == [0, 0]


async def test_one_sweep_at_a_time(erasing: Erasing) -> None:
    with erasing.database.connect(Role.WRITER) as connection:
        connection.execute("SELECT pg_advisory_lock(7106410, 1)")
        with pytest.raises(SweepRunningError):
            sweep(erasing.database, erasing.settings)
    erasing.sweep()
