"""Links and merges that nobody has read when their contact is deleted say the same after a sweep as before it."""

import json
from typing import Any

import pytest

from clientmgr.broker.interface import Message, Retry
from clientmgr.contracts import topics
from streaming import contact_deletion, writer
from tests.broker.recording import Recorder, drain
from tests.erasure.deleting import Erasing
from tests.streaming.rig import NOW, event
from tests.streaming.test_contact_deletion import merged

pytestmark = pytest.mark.anyio

swept_or_not = pytest.mark.parametrize("swept", [False, True])


async def read(erasing: Erasing, *events: dict[str, Any]) -> None:
    for one in events:
        await erasing.log(one)
    await erasing.burst(writer.DAEMON)


async def delete(erasing: Erasing, contact: int, *, at: int, swept: bool) -> None:
    deletion = {"eventId": "d", "customerId": 7, "contactId": contact, "deletedAt": at}
    await erasing.put_into_log(topics.CONTACT_DELETION, Message(json.dumps(deletion).encode(), "7", str(contact)))
    await erasing.burst(contact_deletion.DAEMON)
    if swept:
        erasing.sweep()


REGISTERED = event("registered", at=NOW + 2, attributes={"email": "ada@example.com"})


@swept_or_not
async def test_an_unread_link_still_takes_the_device_of_a_deleted_contact(erasing: Erasing, swept: bool) -> None:
    await read(erasing, REGISTERED)
    await erasing.log(event("contactLinked", at=NOW + 1, contactId=10))
    await delete(erasing, 10, at=NOW + 5, swept=swept)

    await erasing.burst(writer.DAEMON)

    assert erasing.devices() == {}
    assert erasing.errors == []


@swept_or_not
async def test_an_unread_merge_still_takes_the_devices_that_it_brought(erasing: Erasing, swept: bool) -> None:
    await read(erasing, REGISTERED, event("contactLinked", at=NOW + 1, contactId=20))
    await erasing.log(merged(20, 10, at=NOW + 3))
    await delete(erasing, 10, at=NOW + 5, swept=swept)

    await erasing.burst(writer.DAEMON)

    assert erasing.devices() == {}
    assert erasing.errors == []


@swept_or_not
async def test_a_merge_that_waits_still_passes_on_the_links_of_a_deleted_contact(erasing: Erasing, swept: bool) -> None:
    await erasing.log(merged(10, 11, at=NOW + 3))
    await erasing.broker.ensure_subscription(topics.WRITER, topics.WRITER)
    await drain(erasing.broker, Recorder(lambda _: Retry(3600, "later")), subscription=topics.WRITER)
    assert erasing.query("SELECT count(*) FROM clientmgr.delayed_message_t") == [(1,)]
    await delete(erasing, 10, at=NOW + 5, swept=swept)
    erasing.make_due()
    # Before the link: one that precedes the deletion and comes ahead of its merge is the case that depends on arrival.
    await erasing.burst(writer.DAEMON)
    assert erasing.query('SELECT count(*) FROM "tenant_7".contact_merges') == [(1,)]

    await read(erasing, event("contactLinked", at=NOW + 1, contactId=10))

    assert erasing.devices()["c1"]["contact_id"] == 11


async def test_a_link_by_hash_of_a_contact_that_nobody_knows_is_an_unlink(erasing: Erasing) -> None:
    await read(erasing, REGISTERED, event("contactLinked", at=NOW + 3, contactHash="0" * 32))

    assert erasing.devices()["c1"]["contact_id"] is None
    assert erasing.errors == []


async def test_a_second_sweep_finds_nothing_more(erasing: Erasing) -> None:
    await erasing.log(event("contactLinked", at=NOW + 6, contactId=10), trace="ada@example.com")
    await erasing.log(merged(20, 10, at=NOW + 3), key="10")
    await delete(erasing, 10, at=NOW + 5, swept=True)
    left = erasing.payloads()
    await delete(erasing, 10, at=NOW + 5, swept=True)

    assert erasing.payloads() == left
    assert [one["eventType"] for one in left] == ["client.contactLinked", "client.contactMerged"]
    assert "ada@example.com" not in erasing.dump()

    await delete(erasing, 20, at=NOW + 5, swept=True)

    ten, twenty = (erasing.hashes.contact(7, contact).hex() for contact in (10, 20))
    assert [one["payload"] for one in erasing.payloads()] == [
        {"contactHash": ten},
        {"fromContactHash": twenty, "intoContactHash": ten},
    ]
