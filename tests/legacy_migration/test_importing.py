"""Imports on a real PostgreSQL: by the rules of events, beside them in any order, once more, after a kill."""

import asyncio
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from psycopg.rows import dict_row

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.base.stopping import StoppedError
from clientmgr.devices.store import DeviceStore
from clientmgr.legacy_migration.events import StoredItem
from clientmgr.legacy_migration.importing import LegacyImport, ScanGoneError
from tests.devices.histories import APPLICATIONS, CLIENTS, CONTACTS, HASHES, LATEST, TOKENS, Happening, contact_deletion
from tests.devices.test_store import arrive, devices, random_history, rows
from tests.legacy_migration.items import put_scan, stored_item
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


def noted(database: Database, tenant: CustomerId) -> dict[str, Any]:
    with database.connect(Role.READER) as connection, connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute("SELECT * FROM clientmgr.legacy_imports WHERE customer_id = %s", (tenant,))
        found = cursor.fetchone()
    assert found is not None
    return found


def items_left(database: Database) -> int:
    with database.connect(Role.READER) as connection:
        ((count,),) = connection.execute("SELECT count(*) FROM clientmgr.legacy_devices").fetchall()
    return int(count)


def random_items(seed: int) -> list[StoredItem]:
    """At most one for each device and contact, with versions among those of `random_history`."""
    choose = random.Random(seed)
    chosen = choose.sample([(a, c, n) for a in APPLICATIONS for c in CLIENTS for n in CONTACTS], 9)
    return [
        stored_item(
            f"{application}#{client}",
            contact,
            language=choose.choice(["en", "fr"]),
            updatedAt=choose.randint(1, LATEST),
            **choose.choice([{}, {"kind": "fcm_token", "pushToken": choose.choice(TOKENS)}]),
            **choose.choice([{}, {"pushTokenStatus": "invalid"}]),
        )
        for application, client, contact in chosen
    ]


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


@pytest.mark.parametrize("seed", range(6))
async def test_an_import_may_meet_live_events_in_any_order_and_twice(
    database: Database, tenant: CustomerId, importing: LegacyImport, seed: int
) -> None:
    history = [one for one in random_history(seed, 30) if one.kind != "contact.deleted"]
    items = random_items(seed)

    async def left_by(*steps: int) -> dict[Any, Any]:
        """0: the import; 1 and 2: the halves of the history."""
        with database.connect(Role.OWNER) as connection:
            for table in ("devices", "device_tombstones", "push_token_claims", "push_token_verdicts", "contact_links"):
                connection.execute(f'TRUNCATE "tenant_7".{table}')
            connection.execute('TRUNCATE "tenant_7".contact_merges')
        for step in steps:
            if step:
                await arrive(database, tenant, history[:15] if step == 1 else history[15:])
            else:
                put_scan(database, tenant, items)
                await importing.run(tenant)
                assert noted(database, tenant)["different"] == 0
        return devices(database, tenant)

    expected = await left_by(1, 2, 0)
    assert await left_by(0, 1, 2) == expected
    assert await left_by(2, 0, 1, 0) == expected


async def test_a_deleted_contact_does_not_come_back_by_an_import(
    database: Database, tenant: CustomerId, importing: LegacyImport
) -> None:
    await arrive(database, tenant, [contact_deletion(9, 42)])
    put_scan(database, tenant, [stored_item("APP#gone", 42, updatedAt=5), stored_item("APP#here", 43, updatedAt=5)])

    await importing.run(tenant)

    assert [row["client_id"] for row in rows(database, tenant)] == ["here"]
    found = noted(database, tenant)
    assert (found["imported"], found["passed_over"], found["different"]) == (1, 1, 0)


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


FRENCH = '{"language": "fr"}'
IMPORT_IN_A_PROCESS = """
import asyncio
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database
from clientmgr.base.settings import load_settings
from clientmgr.devices.store import DeviceStore
from clientmgr.legacy_migration.importing import LegacyImport

settings = load_settings()
work = LegacyImport(Database.from_settings(settings), DeviceStore.from_settings(settings), items_a_page=20)
asyncio.run(work.run(CustomerId(7)))
"""


def test_kills_under_live_traffic_lose_and_double_nothing(
    database: Database, tenant: CustomerId, settings: Settings
) -> None:
    count = 1500
    put_scan(database, tenant, [stored_item(f"A#c{n}", 100 + n, language="en", updatedAt=5) for n in range(count)])
    environment = os.environ | settings.environment()
    # Of every fifth device an event arrives meanwhile, newer or older than its item.
    live = {f"c{n}": Happening("client.updated", 6 if n % 2 else 4, "A", f"c{n}", FRENCH) for n in range(0, count, 5)}
    kills = 0

    with ThreadPoolExecutor(1) as thread:
        traffic = [thread.submit(asyncio.run, arrive(database, tenant, [event])) for event in live.values()]
        while noted(database, tenant)["checked_at"] is None:
            before = noted(database, tenant)["imported"]
            with subprocess.Popen([sys.executable, "-c", IMPORT_IN_A_PROCESS], env=environment) as process:
                if kills < 3:
                    eventually(lambda b=before: noted(database, tenant)["imported"] > b, "a page is imported")  # type: ignore[misc]
                    process.kill()
                    kills += 1
        for one in traffic:
            one.result()

    found = noted(database, tenant)
    assert kills == 3
    assert (found["imported"], found["rejected"], found["different"]) == (count, 0, 0)
    newer = {client for client, event in live.items() if event.at > 5}
    assert {row["client_id"]: (row["language"], row["contact_id"]) for row in rows(database, tenant)} == {
        f"c{n}": ("fr" if f"c{n}" in newer else "en", 100 + n) for n in range(count)
    }
