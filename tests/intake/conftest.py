"""An intake on each transport in turn, or on the log alone, with one tenant (7) and keys for its application "A"."""

from collections.abc import AsyncIterator, Callable

import pytest

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from tests.broker.conftest import TRANSPORTS
from tests.intake.door import Door, opened
from tests.streaming.conftest import IMPATIENT
from tests.streaming.rig import Rig


@pytest.fixture
def settings(database: Database, settings_for: Callable[[Database], Settings]) -> Settings:
    return settings_for(database).model_copy(update={**IMPATIENT, "intake_port": 0})


@pytest.fixture(params=list(TRANSPORTS))
async def any_door(
    request: pytest.FixtureRequest, anyio_backend: str, database: Database, settings: Settings
) -> AsyncIterator[Door]:
    async with TRANSPORTS[request.param](database, settings) as broker:
        rig = Rig(settings, database, broker)
        rig.activate(7)
        async with opened(rig) as door:
            yield door


@pytest.fixture
async def door(anyio_backend: str, database: Database, settings: Settings) -> AsyncIterator[Door]:
    async with TRANSPORTS["postgres"](database, settings) as broker:
        rig = Rig(settings, database, broker)
        rig.activate(7)
        async with opened(rig) as door:
            yield door
