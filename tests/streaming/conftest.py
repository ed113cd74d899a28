"""A rig on each transport in turn, with one tenant: 7."""

from collections.abc import AsyncIterator, Callable

import pytest

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from tests.broker.conftest import TRANSPORTS
from tests.streaming.rig import Rig

# Waits that are sensible in production and pointless here.
IMPATIENT = {
    "writer_lock_timeout_ms": 150,
    "broker_wait_period_ms": 50,
    "push_token_status_wait_ms": 50,
    "unknown_tenant_grace_s": 0.0,
}


@pytest.fixture(params=list(TRANSPORTS))
async def rig(
    request: pytest.FixtureRequest, anyio_backend: str, database: Database, settings_for: Callable[[Database], Settings]
) -> AsyncIterator[Rig]:
    settings = settings_for(database).model_copy(update=IMPATIENT)
    async with TRANSPORTS[request.param](database, settings) as broker:
        rig = Rig(settings, database, broker)
        rig.activate(7)
        yield rig
