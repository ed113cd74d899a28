"""A tenant on a fresh database."""

from collections.abc import Callable

import pytest

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.tenants.schema_manager import TenantSchemaManager
from tests.devices.histories import CUSTOMER


@pytest.fixture
def tenant(database: Database, settings_for: Callable[[Database], Settings]) -> CustomerId:
    (result,) = TenantSchemaManager(database, settings_for(database)).activate([CUSTOMER], actor="test")
    return result.customer_id
