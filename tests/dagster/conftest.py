"""A registry on a fresh database that the code location finds by its settings, and a (short-lived) Dagster instance."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from clientmgr.base.database import Database, Role
from clientmgr.base.migrations import ensure_database_grants
from clientmgr.base.settings import Settings, load_settings
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from clientmgr.local.processes.dagster_home import write_dagster_home
from clientmgr.local.processes.programs import config_file
from clientmgr.operations.dagster_addresses import dagster_database_url
from clientmgr.tenants.schema_manager import TenantSchemaManager
from tests.conftest import _throwaway_database
from tests.dagster.doors import Doors, opened_doors
from tests.keys import TEST_KEY


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
def stored(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """An instance as `up` configures it: our dagster.yaml, PostgreSQL storage."""
    monkeypatch.setenv("DAGSTER_POSTGRES_URL", dagster_database_url(settings))
    monkeypatch.setenv("DAGSTER_ARTIFACTS_DIR", str(tmp_path / "dagster"))
    write_dagster_home(tmp_path / "dagster", config_file("dagster.yaml"))
    with dg.DagsterInstance.from_config(str(tmp_path / "dagster")) as instance:
        yield instance


@pytest.fixture
def query(database: Database) -> Callable[..., list[tuple[Any, ...]]]:
    """Run a query as the owner and return its rows."""

    def run(sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with database.connect(Role.OWNER, autocommit=True) as connection:
            cursor = connection.execute(sql, parameters)
            return cursor.fetchall() if cursor.description else []

    return run


@pytest.fixture(scope="session")
def doors(
    postgres_server: EmbeddedPostgres, _template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Doors]:
    for database in _throwaway_database(postgres_server, _template):
        with database.connect(Role.OWNER) as connection:
            ensure_database_grants(connection)
        folder = tmp_path_factory.mktemp("doors")
        settings = load_settings(
            database_url=database.url, data_dir=folder, audit_hash_key=TEST_KEY, dagster_port=0, dashboard_port=0
        )
        with opened_doors(settings, folder) as doors:
            yield doors
