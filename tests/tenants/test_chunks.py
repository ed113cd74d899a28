"""Tenants share transactions, a few at a time: what goes wrong with one of them must stay with that one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.tenants.schema_manager import Change, TenantResult, TenantSchemaManager

Query = Callable[..., list[tuple[Any, ...]]]

TENANTS = range(1, 7)


@pytest.fixture
def one_connection(settings: Settings) -> Settings:
    """All tenants in one chunk, and little patience."""
    return settings.model_copy(update={"tenant_connections": 1, "tenant_lock_timeout_ms": 200})


@pytest.fixture
def with_new_column(database: Database, one_connection: Settings, migrations_folder: Path) -> TenantSchemaManager:
    """Six active tenants, and a manager that has one more migration for them."""
    TenantSchemaManager(database, one_connection).activate(TENANTS, actor="test")
    number = len(list(migrations_folder.glob("*.sql"))) + 1
    sql = 'ALTER TABLE :"schema".devices ADD COLUMN nickname text;'
    (migrations_folder / f"{number:04d}_nickname.sql").write_text(sql)
    return TenantSchemaManager(database, one_connection, migrations_folder=migrations_folder)


def changes(results: list[TenantResult]) -> dict[int, Change]:
    return {int(result.customer_id): result.change for result in results}


def test_the_tenants_of_a_chunk_commit_together(with_new_column: TenantSchemaManager, query: Query) -> None:
    results = with_new_column.migrate(actor="test")

    assert set(changes(results).values()) == {Change.MIGRATED}
    transactions = query(
        "SELECT DISTINCT xmin::text FROM clientmgr.tenant_migrations WHERE version = %s", with_new_column.head_version
    )
    assert len(transactions) == 1


def test_a_failing_tenant_takes_none_of_its_chunk_with_it(with_new_column: TenantSchemaManager, query: Query) -> None:
    query("ALTER TABLE tenant_3.devices ADD COLUMN nickname text")

    results = with_new_column.migrate(actor="test")

    assert changes(results) == {tenant: Change.FAILED if tenant == 3 else Change.MIGRATED for tenant in TENANTS}
    assert query("SELECT count(*) FROM clientmgr.audit_log WHERE action = 'tenant.migrate'") == [(5,)]


def test_a_busy_tenant_holds_up_none_of_its_chunk(with_new_column: TenantSchemaManager, database: Database) -> None:
    with database.connect(Role.OWNER) as busy:
        busy.execute("LOCK TABLE tenant_2.devices IN ROW EXCLUSIVE MODE")

        results = with_new_column.migrate(actor="test")

    assert changes(results) == {tenant: Change.FAILED if tenant == 2 else Change.MIGRATED for tenant in TENANTS}
    assert "55P03" in next(result.error or "" for result in results if result.customer_id == 2)
