"""A customer that is being migrated, on a fresh database."""

from collections.abc import Callable

import pytest

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.devices.store import DeviceStore
from clientmgr.legacy_migration.importing import LegacyImport
from clientmgr.tenants.schema_manager import TenantSchemaManager
from tests.devices.histories import CUSTOMER, HASHES


@pytest.fixture
def settings(database: Database, settings_for: Callable[[Database], Settings]) -> Settings:
    return settings_for(database)


@pytest.fixture
def tenant(database: Database, settings: Settings) -> CustomerId:
    (result,) = TenantSchemaManager(database, settings).activate([CUSTOMER], actor="test")
    return result.customer_id


@pytest.fixture
def importing(database: Database) -> LegacyImport:
    """With small pages, so that a few items are several of them."""
    return LegacyImport(database, DeviceStore(HASHES), items_a_page=3)
