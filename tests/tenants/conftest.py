"""A schema manager on a fresh database, and ways to look at what it did."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import sql_root
from clientmgr.tenants.schema_manager import TenantSchemaManager


@pytest.fixture
def settings(database: Database, settings_for: Callable[[Database], Settings]) -> Settings:
    return settings_for(database)


@pytest.fixture
def manager(database: Database, settings: Settings) -> TenantSchemaManager:
    return TenantSchemaManager(database, settings)


@pytest.fixture
def query(database: Database) -> Callable[..., list[tuple[Any, ...]]]:
    """Run a query as the owner and return its rows."""

    def run(sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with database.connect(Role.OWNER, autocommit=True) as connection:
            cursor = connection.execute(sql, parameters)
            return cursor.fetchall() if cursor.description else []

    return run


@pytest.fixture
def migrations_folder(tmp_path: Path) -> Path:
    """A copy of `sql/tenant/` that a test may add to and edit."""
    folder = tmp_path / "tenant"
    folder.mkdir()
    for file in (sql_root() / "tenant").glob("*.sql"):
        (folder / file.name).write_text(file.read_text())
    return folder
