"""A log with messages of tenants 7 and 8, and a hand that deletes: it leaves the hashes that a deletion leaves."""

from collections.abc import AsyncIterator, Callable

import pytest

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.broker.postgres.transport import PostgresBroker
from tests.erasure.deleting import Erasing


@pytest.fixture
async def erasing(
    anyio_backend: str, database: Database, settings_for: Callable[[Database], Settings]
) -> AsyncIterator[Erasing]:
    settings = settings_for(database)
    async with PostgresBroker(database, settings) as broker:
        erasing = Erasing(settings, database, broker)
        erasing.activate(7, 8)
        yield erasing
