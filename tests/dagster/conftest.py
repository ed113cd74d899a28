"""A registry on a fresh database that the code location finds by its settings, and a (short-lived) Dagster instance."""

from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg
import pytest

from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.tenants.schema_manager import TenantSchemaManager


@pytest.fixture
def settings(
    database: Database, settings_for: Callable[[Database], Settings], monkeypatch: pytest.MonkeyPatch
) -> Settings:
    settings = settings_for(database)
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    return settings


@pytest.fixture
def manager(database: Database, settings: Settings) -> TenantSchemaManager:
    return TenantSchemaManager(database, settings)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def query(database: Database) -> Callable[..., list[tuple[Any, ...]]]:
    """Run a query as the owner and return its rows."""

    def run(sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with database.connect(Role.OWNER, autocommit=True) as connection:
            cursor = connection.execute(sql, parameters)
            return cursor.fetchall() if cursor.description else []

    return run
