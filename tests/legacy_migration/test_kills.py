"""A customer is imported while events arrive, and the import is killed over and over: no device is lost or doubled.

By default some thousand items. `make kill-migration` makes it 200,000 (MIGRATION_KILL_ITEMS).
"""

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from tests.devices.histories import Happening
from tests.devices.test_store import arrive, devices
from tests.legacy_migration.histories import Household
from tests.legacy_migration.items import noted, put_scan
from tests.waiting import eventually

ITEMS = int(os.environ.get("MIGRATION_KILL_ITEMS", "1500"))
A_HOUSEHOLD = 5
A_PAGE = 20 if ITEMS < 100_000 else 500
A_BATCH = 100 if ITEMS < 100_000 else 500
KILLS = 3 if ITEMS < 100_000 else 12
"""While items are imported. One more comes while both stores are compared."""
WITHIN_S = 100 if ITEMS < 100_000 else 900

IMPORT_IN_A_PROCESS = """
import asyncio, sys
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database
from clientmgr.base.settings import load_settings
from clientmgr.devices.store import DeviceStore
from clientmgr.legacy_migration.importing import LegacyImport

settings = load_settings()
store, page = DeviceStore.from_settings(settings), int(sys.argv[1])
asyncio.run(LegacyImport(Database.from_settings(settings), store, items_a_page=page).run(CustomerId(7)))
"""


@pytest.mark.timeout(3 * WITHIN_S)
def test_kills_under_live_traffic_lose_and_double_nothing(
    database: Database, tenant: CustomerId, settings: Settings
) -> None:
    households = [Household.random(seed, items=A_HOUSEHOLD, events=8) for seed in range(ITEMS // A_HOUSEHOLD)]
    items = [item.stored() for household in households for item in household.items]
    put_scan(database, tenant, items)

    def imported() -> int:
        return int(noted(database, tenant)["imported"])

    def is_imported() -> bool:
        return noted(database, tenant)["imported_at"] is not None

    def is_compared() -> bool:
        return noted(database, tenant)["checked_at"] is not None

    def events_arrive() -> int:
        """All along the import: one batch after another, each when a share of the items is there."""
        batches = batches_of([one.before for one in households])
        for number, batch in enumerate(batches):
            due = len(items) * number // len(batches)
            eventually(lambda due=due: imported() >= due, f"{due} items", within_s=WITHIN_S)  # type: ignore[misc]
            asyncio.run(arrive(database, tenant, batch))
        return sum(map(len, batches))

    with ThreadPoolExecutor(1) as thread:
        traffic = thread.submit(events_arrive)
        for number in range(1, KILLS + 1):
            mark = len(items) * number // (KILLS + 1)
            killed_when(settings, lambda mark=mark: imported() >= mark)  # type: ignore[misc]
            assert not is_imported()
        killed_when(settings, is_imported)
        assert not is_compared()
        assert import_in_a_process(settings).wait(WITHIN_S) == 0
        arrived = traffic.result()

    found = noted(database, tenant)
    assert (found["imported"], found["rejected"], found["different"]) == (len(items), 0, 0)
    for batch in batches_of([one.after for one in households]):
        arrived += len(batch)
        asyncio.run(arrive(database, tenant, batch))
    expected = {key: device for household in households for key, device in household.expected().items()}
    left = devices(database, tenant)
    print(f"{len(items)} items, {arrived} events, {KILLS + 1} kills: {len(left)} devices")
    apart = {key for key in expected.keys() | left.keys() if expected.get(key) != left.get(key)}
    assert not apart, [(key, expected.get(key), left.get(key)) for key in sorted(apart)[:5]]

    put_scan(database, tenant, items)
    assert import_in_a_process(settings).wait(WITHIN_S) == 0
    assert noted(database, tenant)["different"] == 0
    assert devices(database, tenant) == expected, "an import of the next night changes nothing"


def batches_of(histories: list[list[Happening]]) -> list[list[Happening]]:
    """Events of all households, mixed, each household's in its order."""
    turns = [number for number, history in enumerate(histories) for _ in history]
    random.Random(19).shuffle(turns)
    rest = [iter(history) for history in histories]
    events = [next(rest[number]) for number in turns]
    return [events[start : start + A_BATCH] for start in range(0, len(events), A_BATCH)]


def killed_when(settings: Settings, is_time: Callable[[], bool]) -> None:
    process = import_in_a_process(settings)
    try:
        eventually(is_time, "it is time to kill", within_s=WITHIN_S)
    finally:
        process.kill()
        process.wait(30)


def import_in_a_process(settings: Settings) -> subprocess.Popen[bytes]:
    environment = os.environ | settings.environment()
    return subprocess.Popen([sys.executable, "-c", IMPORT_IN_A_PROCESS, str(A_PAGE)], env=environment)
