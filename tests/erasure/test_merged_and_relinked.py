"""What a deletion leaves of a contact that others were merged into, or whose device went to somebody else."""

import json
from typing import Any

import pytest

from clientmgr.base.customer_ids import CustomerId, in_schema
from clientmgr.broker.interface import Message
from clientmgr.contracts import topics
from clientmgr.devices.queries import device_queries
from clientmgr.erasure.places import Stores
from clientmgr.erasure.proof import prove_contact
from clientmgr.operations.dagster_addresses import dagster_database_url
from streaming import contact_deletion, writer
from tests.erasure.deleting import Erasing
from tests.streaming.rig import NOW, event

pytestmark = pytest.mark.anyio

T = NOW - 3_600_000


async def written(erasing: Erasing, *events: dict[str, Any]) -> None:
    for one in events:
        await erasing.log(one)
    await erasing.burst(writer.DAEMON)


async def deleted(erasing: Erasing, contact: int, at: int) -> None:
    deletion = {"eventId": f"d-{contact}", "customerId": 7, "contactId": contact, "deletedAt": at}
    await erasing.put_into_log(topics.CONTACT_DELETION, Message(json.dumps(deletion).encode(), "7", str(contact)))
    await erasing.burst(contact_deletion.DAEMON)


def linked(contact: int, at: int) -> dict[str, Any]:
    return event("contactLinked", customer=7, client="c1", at=at, contactId=contact)


def merged(contact: int, into: int, at: int) -> dict[str, Any]:
    both = event("contactMerged", customer=7, at=at, fromContactId=contact, intoContactId=into)
    return {name: value for name, value in both.items() if name not in ("applicationCode", "clientId")}


def contact_ids(erasing: Erasing) -> list[Any]:
    return erasing.query(
        "SELECT contact_id FROM tenant_7.contact_links UNION ALL SELECT into_contact_id FROM tenant_7.contact_merges"
    )


async def test_a_device_that_came_by_a_merge_is_looked_for_in_the_log(erasing: Erasing) -> None:
    await written(
        erasing,
        event("registered", customer=7, client="c1", at=T, hardwareId="hw-ada"),
        linked(20, T + 1),
        merged(20, 10, T + 2),
    )
    await deleted(erasing, 10, T + 3)
    erasing.query("DELETE FROM clientmgr.outbox_message_t WHERE convert_from(payload, 'UTF8') ~ 'ontactId'")

    stores = Stores(erasing.database, erasing.settings, dagster_database_url(erasing.settings))
    report = prove_contact(stores, CustomerId(7), 10, actor="test")

    assert {place.place: place.found for place in report.places if place.found} == {"clientmgr.outbox_message_t": 1}


async def test_no_id_of_a_contact_that_was_merged_into_a_deleted_one_stays(erasing: Erasing) -> None:
    await written(erasing, linked(30, T), merged(30, 20, T + 1), merged(20, 10, T + 2))
    await deleted(erasing, 10, T + 3)
    assert contact_ids(erasing) == [(None,), (None,), (None,)]
    assert erasing.query("SELECT FROM tenant_7.devices") == []


async def test_none_stays_of_merges_of_one_millisecond(erasing: Erasing) -> None:
    await written(erasing, linked(40, T), merged(40, 30, T), merged(30, 20, T), merged(20, 10, T))
    await deleted(erasing, 10, T + 3)
    assert contact_ids(erasing) == [(None,)] * 4


async def test_of_merges_in_a_circle_the_deleted_contacts_id_goes(erasing: Erasing) -> None:
    await written(erasing, linked(20, T), merged(20, 10, T), merged(10, 20, T))
    await deleted(erasing, 10, T - 1)
    assert sorted(contact_ids(erasing), key=str) == [(20,), (None,), (None,)]
    assert erasing.query("SELECT contact_id FROM tenant_7.devices") == [(20,)]


async def test_a_link_after_the_merge_keeps_its_living_contact(erasing: Erasing) -> None:
    await written(erasing, linked(20, T), merged(20, 10, T + 1), linked(20, T + 5))
    await deleted(erasing, 10, T + 3)
    await written(erasing, event("updated", customer=7, client="c1", at=T + 6, language="en"))
    assert sorted(contact_ids(erasing), key=str) == [(20,), (None,), (None,)]
    assert erasing.query("SELECT contact_id FROM tenant_7.devices") == [(20,)]


async def test_the_reconciliation_knows_contacts_whose_device_went_to_others(erasing: Erasing) -> None:
    await written(erasing, linked(10, T), linked(11, T + 2))
    query = in_schema(device_queries("batch")["linked_contacts"], CustomerId(7)).replace("%(in_contacts)s", "true")
    assert sorted(erasing.query(query)) == [(10,), (11,)]
    await deleted(erasing, 10, T + 1)
    assert erasing.query(query) == [(11,)], "what is carried out is found no more"


async def test_a_deleted_contacts_hash_goes_from_a_device_that_lives(erasing: Erasing) -> None:
    await written(erasing, linked(10, T), linked(11, T + 2))
    await deleted(erasing, 10, T + 3)
    erasing.query("UPDATE tenant_7.contact_links SET linked_version = linked_version - 400 * 86400000::bigint")
    erasing.sweep()
    of_contact = "SELECT count(*) FROM tenant_7.contact_links WHERE contact_hash = %s"
    assert erasing.query(of_contact, erasing.hashes.contact(7, 10)) == [(1,)], "its tombstone is still there"
    erasing.query("UPDATE tenant_7.contact_tombstones SET recorded_at = now() - interval '400 days'")
    erasing.query("UPDATE clientmgr.erasure_sweeps SET started_at = started_at - interval '1 day'")

    erasing.sweep()

    assert erasing.query(of_contact, erasing.hashes.contact(7, 10)) == [(0,)]
    assert erasing.query(of_contact, erasing.hashes.contact(7, 11)) == [(1,)]
    assert erasing.query("SELECT contact_id, contact_hash FROM tenant_7.contact_links ORDER BY linked_version")[0] == (
        None,
        b"",
    )
    assert erasing.query("SELECT contact_id FROM tenant_7.devices") == [(11,)]
