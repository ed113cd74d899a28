"""The tenants whose orphans are deleted."""

from collections.abc import Callable

import pytest

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from tests.orphans.rig import Rig


@pytest.fixture
def rig(database: Database, settings_for: Callable[[Database], Settings]) -> Rig:
    settings = settings_for(database).model_copy(update={"tenant_connections": 2, "tenant_lock_timeout_ms": 100})
    return Rig(database, settings)
