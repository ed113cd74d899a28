"""The contact-deletion worker: devices gone, a tombstone against late events, a row in the audit log, errors apart."""

from typing import Any

import pytest

from clientmgr.audit.log import AuditLogger, read_log
from clientmgr.audit.verification import verify
from clientmgr.base.database import Role
from clientmgr.contracts import topics
from clientmgr.contracts.push_tokens import token_digest
from streaming import contact_deletion, writer
from tests.streaming.rig import NOW, Rig, event

pytestmark = pytest.mark.anyio


def deletion(contact: Any = 42, *, at: Any = NOW + 5, customer: Any = 7) -> dict[str, Any]:
    return {"eventId": f"d-{contact}", "customerId": customer, "contactId": contact, "deletedAt": at}


async def linked(rig: Rig, *clients: str, contact: int = 42, at: int = NOW) -> None:
    await rig.publish(*(event("contactLinked", client=client, at=at, contactId=contact) for client in clients))
    await rig.burst(writer.DAEMON)


async def delete(rig: Rig, *messages: dict[str, Any] | bytes) -> list[bytes]:
    bodies = await rig.publish(*messages, topic=topics.CONTACT_DELETION)
    await rig.burst(contact_deletion.DAEMON)
    return bodies


def audited(rig: Rig) -> list[tuple[str | None, str, int | None]]:
    with rig.database.connect(Role.READER) as connection:
        records = list(read_log(connection, customer_id=7, action="contact.delete", oldest_first=True))
    return [(record.contact_hash, record.outcome, record.rows_affected) for record in records]


async def test_a_contacts_devices_go_and_others_stay(rig: Rig) -> None:
    await linked(rig, "c1", "c2")
    await linked(rig, "c3", contact=43)
    await delete(rig, deletion(42))

    assert rig.devices().keys() == {"c3"}


async def test_a_late_event_does_not_bring_a_deleted_contacts_device_back(rig: Rig) -> None:
    await linked(rig, "c1")
    await delete(rig, deletion(42))
    await rig.publish(
        event("registered", at=NOW + 4, language="en"),
        event("contactLinked", at=NOW + 3, contactId=42),
        event("contactLinked", client="c9", at=NOW + 8, contactId=42),
    )
    await rig.burst(writer.DAEMON)

    # The newer link to the deleted contact counts as an unlink.
    assert {client: row["contact_id"] for client, row in rig.devices().items()} == {"c9": None}


async def test_a_device_that_is_anothers_by_then_stays_as_it_is(rig: Rig) -> None:
    await rig.publish(event("registered", language="en"), event("contactLinked", at=NOW + 1, contactId=42))
    await linked(rig, "c1", contact=43, at=NOW + 2)
    await delete(rig, deletion(42))

    row = rig.devices()["c1"]
    assert (row["contact_id"], row["language"]) == (43, "en")
    assert [rows for _, _, rows in audited(rig)] == [0]


async def test_a_merge_followed_by_the_deletion_of_the_old_contact_deletes_nothing(rig: Rig) -> None:
    await linked(rig, "c1")
    await rig.publish(merged(42, 43, at=NOW + 1))
    await rig.burst(writer.DAEMON)
    await delete(rig, deletion(42))
    await linked(rig, "late", at=NOW - 1)  # a link from before the merge that comes after all

    assert {client: row["contact_id"] for client, row in rig.devices().items()} == {"c1": 43, "late": 43}
    await delete(rig, deletion(43))
    assert rig.devices() == {}


async def test_what_outlives_a_deletion_names_nobody(rig: Rig) -> None:
    await rig.publish(
        event("registered", client="kept-out-of-sight", hardwareId="hardware-1", attributes={"email": "jane@x.org"}),
        event("pushTokenSet", client="kept-out-of-sight", at=NOW + 1, kind="fcm_token", pushToken="token-1"),
        event("contactLinked", client="kept-out-of-sight", at=NOW + 2, contactId=987_654_321),
        merged(876_543_210, 987_654_321, at=NOW + 3),
    )
    await rig.burst(writer.DAEMON)
    planted = [b"kept-out-of-sight", b"hardware-1", b"jane@x.org", b"token-1", b"987654321"]
    assert all(text in contents_of_the_tenant(rig) for text in planted)
    await delete(rig, deletion(987_654_321))

    left = contents_of_the_tenant(rig)
    assert left
    digest = token_digest("token-1").hex().encode()
    assert [text for text in [*planted, digest, b"876543210"] if text in left] == []


def merged(old: int, new: int, *, at: int) -> dict[str, Any]:
    message = event("contactMerged", at=at, fromContactId=old, intoContactId=new)
    return {name: value for name, value in message.items() if name not in ("applicationCode", "clientId")}


def contents_of_the_tenant(rig: Rig) -> bytes:
    """All rows of all of its tables."""
    tables = rig.query("SELECT table_name FROM information_schema.tables WHERE table_schema = 'tenant_7'")
    rows = [rig.query(f"SELECT to_jsonb(t)::text FROM tenant_7.{table} AS t") for (table,) in tables]
    return "\n".join(row for found in rows for (row,) in found).encode()


async def test_a_contact_that_is_deleted_before_its_devices_arrive_gets_none(rig: Rig) -> None:
    await delete(rig, deletion(42))
    await linked(rig, "c1", "c2")

    assert rig.devices() == {}


async def test_each_deletion_is_audited_with_a_hash_and_the_number_of_devices(rig: Rig) -> None:
    await linked(rig, "c1", "c2")
    await delete(rig, deletion(42), deletion(43))

    keyed = AuditLogger.from_settings(rig.settings)
    assert set(audited(rig)) == {
        (keyed.contact_hash(7, 42), "deleted", 2),
        (keyed.contact_hash(7, 43), "deleted", 0),
    }
    with rig.database.connect(Role.READER) as connection:
        assert list(verify(connection, keyed)) == []


async def test_deleting_twice_is_fine(rig: Rig) -> None:
    await linked(rig, "c1")
    await delete(rig, deletion(42), deletion(42))
    await delete(rig, deletion(42))

    assert rig.devices() == {}
    assert sum(rows or 0 for _, _, rows in audited(rig)) == 1
    assert rig.topic(topics.CONTACT_DELETION_ERRORS) == []


async def test_a_wrong_message_goes_to_the_errors_as_it_came_and_the_others_are_done(rig: Rig) -> None:
    await linked(rig, "c1")
    bodies = await delete(
        rig,
        deletion("42"),
        deletion(0),
        deletion(42),
        deletion(customer=0),
        deletion(at=4_000_000_000_000),
        deletion(customer=99),
        b'{"eventId": "x"}',
    )

    errors = {error.data: error.attributes for error in rig.topic(topics.CONTACT_DELETION_ERRORS)}
    assert errors.keys() == set(bodies) - {bodies[2]}
    named = [errors[bodies[at]]["error"].partition(":")[0] for at in (0, 1, 3, 4, 6)]
    assert named == ["contactId", "contactId", "customerId", "deletedAt", "customerId"]
    assert errors[bodies[5]]["errorClass"] == "UnknownTenantError"
    assert rig.devices() == {}


async def test_a_deletion_that_can_not_be_done_now_comes_again(rig: Rig) -> None:
    await linked(rig, "c1")
    with rig.database.connect(Role.OWNER) as locking:
        locking.execute("LOCK TABLE tenant_7.contact_links IN ACCESS EXCLUSIVE MODE")
        await delete(rig, deletion(42))
        assert rig.topic(topics.CONTACT_DELETION_ERRORS) == []
    assert audited(rig) == []

    rig.make_due()
    await rig.burst(contact_deletion.DAEMON)
    assert rig.devices() == {}
    assert [(outcome, rows) for _, outcome, rows in audited(rig)] == [("deleted", 1)]


async def test_what_nobody_foresaw_is_tried_so_often_and_is_then_an_error(rig: Rig) -> None:
    rig.query("ALTER TABLE tenant_7.contact_links RENAME TO lost")
    (body,) = await rig.publish(deletion(42), topic=topics.CONTACT_DELETION)
    for _ in range(4):
        await rig.burst(contact_deletion.DAEMON, broker_max_attempts=4)
        rig.make_due()
    await rig.burst(contact_deletion.DAEMON, broker_max_attempts=4)

    (error,) = rig.topic(topics.CONTACT_DELETION_ERRORS)
    assert (error.data, error.attributes["errorClass"]) == (body, "UndefinedTable")
