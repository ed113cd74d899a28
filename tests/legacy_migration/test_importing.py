"""Imports on a real PostgreSQL: by the rules of events, beside them in any order, once more, after a stop."""

import random

import pytest

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.stopping import StoppedError
from clientmgr.devices.store import DeviceStore
from clientmgr.legacy_migration.importing import LegacyImport, ScanGoneError
from tests.devices.histories import HASHES, Happening, contact_deletion, contact_merge
from tests.devices.test_store import arrive, cut, devices, random_history, rows
from tests.legacy_migration.histories import deletions_in_time, model, random_items
from tests.legacy_migration.items import noted, put_scan, stored_item

pytestmark = pytest.mark.anyio


def items_left(database: Database) -> int:
    with database.connect(Role.READER) as connection:
        ((count,),) = connection.execute("SELECT count(*) FROM clientmgr.legacy_devices").fetchall()
    return int(count)


async def test_what_is_imported_is_compared_counted_and_gone_from_our_tables(
    database: Database, tenant: CustomerId, importing: LegacyImport
) -> None:
    items = [stored_item(f"APP#c{n}", 40 + n, platform="ios", updatedAt=5) for n in range(7)]
    bad = stored_item("APP#bad", 42, webPush={"endpoint": "https://push.example/1"})
    nobody = stored_item("APP#nobody", "x")
    put_scan(database, tenant, [*items, bad, nobody])

    await importing.run(tenant)

    found = noted(database, tenant)
    assert (found["imported"], found["rejected"], found["passed_over"], found["different"]) == (7, 1, 1, 0)
    assert found["rejections"] == {"payload.webPush.keys: expected, but missing": 1}
    assert found["imported_at"] is not None
    assert found["checked_at"] is not None
    assert items_left(database) == 0
    assert {row["client_id"]: row["contact_id"] for row in rows(database, tenant)} == {
        f"c{n}": 40 + n for n in range(7)
    }


@pytest.mark.parametrize("seed", range(8))
async def test_an_import_in_the_middle_of_a_shuffled_history_leaves_what_the_rules_say(
    database: Database, tenant: CustomerId, importing: LegacyImport, seed: int
) -> None:
    choose = random.Random(seed)
    items = random_items(choose, 9)
    history, place = random_history(seed, 30), choose.randrange(30)
    said = [one for item in items for one in item.said()]
    before, after = deletions_in_time(history[:place], said, history[place:])
    expected = model([*before, *said, *after])

    for batch in cut(before, choose):
        await arrive(database, tenant, batch)
    put_scan(database, tenant, [item.stored() for item in items])
    await importing.run(tenant)
    assert noted(database, tenant)["different"] == 0
    for batch in cut(after, choose):
        await arrive(database, tenant, batch)
    assert devices(database, tenant) == expected

    put_scan(database, tenant, [item.stored() for item in items])
    await importing.run(tenant)
    assert devices(database, tenant) == expected, "an import of the next night changes nothing"


async def test_a_deleted_contact_does_not_come_back_by_an_import(
    database: Database, tenant: CustomerId, importing: LegacyImport
) -> None:
    await arrive(database, tenant, [contact_deletion(9, 42)])
    put_scan(database, tenant, [stored_item("APP#gone", 42, updatedAt=5), stored_item("APP#here", 43, updatedAt=5)])

    await importing.run(tenant)

    assert [row["client_id"] for row in rows(database, tenant)] == ["here"]
    found = noted(database, tenant)
    assert (found["imported"], found["different"]) == (2, 0)


async def test_what_a_deleted_contacts_item_says_of_others_is_imported_all_the_same(
    database: Database, tenant: CustomerId, importing: LegacyImport
) -> None:
    """The device was somebody else's by the time of the deletion, or was merged away from the contact before it."""
    link = Happening("client.contactLinked", 7, "APP", "sold", '{"contactId": 43}')
    await arrive(database, tenant, [link, contact_merge(6, (44, 45))])
    await arrive(database, tenant, [contact_deletion(9, 42), contact_deletion(9, 44)])
    items = [("APP#sold", 42), ("APP#merged", 44), ("APP#theirs", 42)]
    put_scan(database, tenant, [stored_item(key, contact, language="de", updatedAt=5) for key, contact in items])

    await importing.run(tenant)

    found = {row["client_id"]: (row["contact_id"], row["language"]) for row in rows(database, tenant)}
    assert found == {"sold": (43, "de"), "merged": (45, "de")}


async def test_the_comparison_counts_every_device_and_field_that_is_missing_or_older_here(
    database: Database, tenant: CustomerId, importing: LegacyImport
) -> None:
    items = [stored_item(f"APP#c{n}", 42, language="en", platform="ios", updatedAt=5) for n in range(5)]
    put_scan(database, tenant, items)
    await importing.run(tenant)
    changed = [
        stored_item("APP#c0", 42, language="fr", platform="ios", updatedAt=6),
        stored_item("APP#c1", 43, language="en", platform="ios", updatedAt=6),
        stored_item("APP#new", 42, updatedAt=5),
        *items[2:],
    ]
    put_scan(database, tenant, changed)
    with database.connect(Role.WRITER) as connection:
        # As if everything had been imported: only the comparison is left to do.
        connection.execute("UPDATE clientmgr.legacy_imports SET imported_at = now(), imported = items")

    await importing.run(tenant)

    found = noted(database, tenant)
    assert found["different"] == 3
    assert found["different_fields"]["the device"] == 1
    assert found["different_fields"]["contact_id"] >= 1
    assert found["different_fields"]["language"] >= 1


async def test_what_is_newer_here_is_no_difference(
    database: Database, tenant: CustomerId, importing: LegacyImport
) -> None:
    put_scan(database, tenant, [stored_item("APP#c1", 42, language="en", updatedAt=5)])
    await importing.run(tenant)
    put_scan(database, tenant, [stored_item("APP#c1", 42, language="older", updatedAt=4)])

    await importing.run(tenant)

    assert noted(database, tenant)["different"] == 0
    assert [row["language"] for row in rows(database, tenant)] == ["en"]


async def test_items_that_are_gone_are_never_taken_for_imported(
    database: Database, tenant: CustomerId, importing: LegacyImport
) -> None:
    put_scan(database, tenant, [stored_item(f"APP#c{n}", 42, updatedAt=5) for n in range(8)])
    with database.connect(Role.WRITER) as connection:
        connection.execute("DELETE FROM clientmgr.legacy_devices WHERE device_key > 'APP#c3'")

    with pytest.raises(ScanGoneError, match="materialise legacy_devices"):
        await importing.run(tenant)

    found = noted(database, tenant)
    assert (found["imported_at"], found["checked_at"]) == (None, None)


async def test_an_import_that_is_stopped_goes_on_where_it_was(database: Database, tenant: CustomerId) -> None:
    put_scan(database, tenant, [stored_item(f"APP#c{n}", 42, updatedAt=5) for n in range(9)])
    asked = iter([True, False])
    stopped = LegacyImport(database, DeviceStore(HASHES), lambda: next(asked), items_a_page=3)
    with pytest.raises(StoppedError):
        await stopped.run(tenant)
    assert len(rows(database, tenant)) == 3

    done: list[int] = []
    await LegacyImport(database, DeviceStore(HASHES), items_a_page=3).run(tenant, done.append)

    assert done == [3, 6], "what was imported before is not read again"
    assert len(rows(database, tenant)) == 9
    assert noted(database, tenant)["imported"] == 9
