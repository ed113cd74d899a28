"""Creating, migrating and dropping tenant schemas on a real PostgreSQL."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import InvalidInputError, MigrationError
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import sql_root
from clientmgr.tenants import schema_manager
from clientmgr.tenants.schema_manager import Change, TenantSchemaManager
from tests.devices.test_store import TABLES

Query = Callable[..., list[tuple[Any, ...]]]

# Of the first migration.
TENANT_TABLES = {"devices", "device_tombstones", "contact_tombstones", "contact_links", "push_token_claims"}


@pytest.fixture
def migrations_folder(tmp_path: Path) -> Path:
    """The first migration of `sql/tenant/`, for a test to edit and to add a second one to.

    No later one: these tests are about how migrations are applied, and stay as they are when a release brings another.
    """
    folder = tmp_path / "tenant"
    folder.mkdir()
    (first,) = (sql_root() / "tenant").glob("0001_*.sql")
    (folder / first.name).write_text(first.read_text())
    return folder


@pytest.fixture
def manager(database: Database, settings: Settings, migrations_folder: Path) -> TenantSchemaManager:
    return TenantSchemaManager(database, settings, migrations_folder=migrations_folder)


def tables_of(query: Query, schema: str) -> set[str]:
    return {row[0] for row in query("SELECT tablename FROM pg_tables WHERE schemaname = %s", schema)}


def status_of(query: Query, customer_id: int) -> str:
    status: str = query("SELECT status FROM clientmgr.tenants WHERE customer_id = %s", customer_id)[0][0]
    return status


def test_activation_registers_the_customer_and_creates_its_schema(manager: TenantSchemaManager, query: Query) -> None:
    (result,) = manager.activate(["123"], actor="test")

    assert (result.change, result.schema_version) == (Change.CREATED, manager.head_version)
    assert tables_of(query, "tenant_123") == TENANT_TABLES
    assert query("SELECT status, schema_version FROM clientmgr.tenants") == [("active", manager.head_version)]
    assert query("SELECT version FROM clientmgr.tenant_migrations WHERE customer_id = 123") == [(1,)]


def test_activating_twice_changes_nothing(manager: TenantSchemaManager, query: Query) -> None:
    manager.activate([123], actor="test")
    before = query("SELECT * FROM clientmgr.tenants")

    (result,) = manager.activate([123], actor="test")

    assert result.change is Change.UNCHANGED
    assert query("SELECT * FROM clientmgr.tenants") == before


def test_one_bad_customer_id_stops_the_call_before_anything_is_created(
    manager: TenantSchemaManager, query: Query
) -> None:
    with pytest.raises(InvalidInputError, match="customerId"):
        manager.activate([1, "2; drop schema x", 3], actor="test")

    assert query("SELECT count(*) FROM clientmgr.tenants") == [(0,)]
    assert query("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'tenant%%'") == [(0,)]


def test_concurrent_activations_of_the_same_tenants_create_each_once(
    database: Database, settings: Settings, query: Query
) -> None:
    callers = 4
    together = threading.Barrier(callers)

    def activate(_: int) -> list[Change]:
        manager = TenantSchemaManager(database, settings)
        together.wait()
        return [result.change for result in manager.activate(range(1, 9), actor="test")]

    with ThreadPoolExecutor(callers) as executor:
        changes = [change for result in executor.map(activate, range(callers)) for change in result]

    assert changes.count(Change.CREATED) == 8
    assert changes.count(Change.UNCHANGED) == 8 * (callers - 1)
    assert query("SELECT count(*) FROM clientmgr.audit_log WHERE action = 'tenant.activate'") == [(8,)]


def test_a_schema_that_nobody_registered_is_never_adopted(manager: TenantSchemaManager, query: Query) -> None:
    query("CREATE SCHEMA tenant_5")

    results = {int(result.customer_id): result for result in manager.activate([4, 5, 6], actor="test")}

    assert results[5].change is Change.FAILED
    assert "already exists" in (results[5].error or "")
    assert (results[4].change, results[6].change) == (Change.CREATED, Change.CREATED)
    assert status_of(query, 5) == "activating"


def test_a_migration_reaches_every_tenant_and_is_recorded(
    database: Database, settings: Settings, manager: TenantSchemaManager, migrations_folder: Path, query: Query
) -> None:
    manager.activate([1, 2, 3], actor="test")
    (migrations_folder / "0002_add_note.sql").write_text('ALTER TABLE :"schema".devices ADD COLUMN note text;')
    newer = TenantSchemaManager(database, settings, migrations_folder=migrations_folder)

    results = newer.migrate(actor="test")

    assert [result.change for result in results] == [Change.MIGRATED] * 3
    columns = query("SELECT table_schema FROM information_schema.columns WHERE column_name = 'note' ORDER BY 1")
    assert columns == [("tenant_1",), ("tenant_2",), ("tenant_3",)]
    assert query("SELECT DISTINCT schema_version FROM clientmgr.tenants") == [(2,)]
    assert query("SELECT count(*) FROM clientmgr.tenant_migrations WHERE version = 2") == [(3,)]


def test_only_the_chosen_tenants_are_migrated(
    database: Database, settings: Settings, manager: TenantSchemaManager, migrations_folder: Path, query: Query
) -> None:
    manager.activate([1, 2], actor="test")
    (migrations_folder / "0002_add_note.sql").write_text('ALTER TABLE :"schema".devices ADD COLUMN note text;')

    TenantSchemaManager(database, settings, migrations_folder=migrations_folder).migrate([2], actor="test")

    assert query("SELECT customer_id, schema_version FROM clientmgr.tenants ORDER BY 1") == [(1, 1), (2, 2)]


def test_a_failing_tenant_is_reported_keeps_its_old_schema_and_does_not_stop_the_others(
    database: Database, settings: Settings, manager: TenantSchemaManager, migrations_folder: Path, query: Query
) -> None:
    manager.activate([1, 2, 3], actor="test")
    query('ALTER TABLE "tenant_2".devices ADD COLUMN note text')
    (migrations_folder / "0002_first.sql").write_text('CREATE TABLE :"schema".extra ();')
    (migrations_folder / "0003_second.sql").write_text('ALTER TABLE :"schema".devices ADD COLUMN note text;')
    newer = TenantSchemaManager(database, settings, migrations_folder=migrations_folder)

    results = {int(result.customer_id): result for result in newer.migrate(actor="test")}

    assert (results[1].change, results[3].change) == (Change.MIGRATED, Change.MIGRATED)
    assert results[2].change is Change.FAILED
    assert 'column "note" of relation "devices" already exists' in (results[2].error or "")
    assert tables_of(query, "tenant_2") == TENANT_TABLES, "all pending migrations of a tenant are one transaction"
    assert query("SELECT schema_version FROM clientmgr.tenants WHERE customer_id = 2") == [(1,)]
    assert [result.customer_id for result in newer.migrate(actor="test")] == [2], "only it is still pending"


def test_a_slow_migration_is_a_transaction_per_tenant(
    database: Database,
    settings: Settings,
    manager: TenantSchemaManager,
    migrations_folder: Path,
    query: Query,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schema_manager, "CHUNK_PATIENCE_S", 0.0)
    one_connection = settings.model_copy(update={"tenant_connections": 1})
    manager.activate(range(1, 6), actor="test")
    (migrations_folder / "0002_add_note.sql").write_text('ALTER TABLE :"schema".devices ADD COLUMN note text;')

    results = TenantSchemaManager(database, one_connection, migrations_folder=migrations_folder).migrate(actor="test")

    assert [result.change for result in results] == [Change.MIGRATED] * 5
    transactions = query("SELECT count(DISTINCT xmin::text) FROM clientmgr.tenant_migrations WHERE version = 2")
    assert transactions == [(5,)]


def test_an_edited_applied_migration_is_refused_by_name(
    database: Database, settings: Settings, manager: TenantSchemaManager, migrations_folder: Path, query: Query
) -> None:
    manager.activate([1], actor="test")
    file = migrations_folder / "0001_devices.sql"
    file.write_text(file.read_text() + "\n-- edited\n")
    edited = TenantSchemaManager(database, settings, migrations_folder=migrations_folder)

    with pytest.raises(MigrationError, match=r"0001_devices\.sql was edited"):
        edited.migrate(actor="test")
    with pytest.raises(MigrationError, match=r"0001_devices\.sql was edited"):
        edited.activate([2], actor="test")

    assert query("SELECT count(*) FROM clientmgr.tenants") == [(1,)]


def test_a_migration_that_failed_everywhere_may_be_mended(
    database: Database, settings: Settings, manager: TenantSchemaManager, migrations_folder: Path, query: Query
) -> None:
    manager.activate([1, 2], actor="test")
    file = migrations_folder / "0002_add_note.sql"
    file.write_text('ALTER TABLE :"schema".devices ADD COLUMN note txet;')
    wrong = TenantSchemaManager(database, settings, migrations_folder=migrations_folder).migrate(actor="test")
    assert {result.change for result in wrong} == {Change.FAILED}

    file.write_text('ALTER TABLE :"schema".devices ADD COLUMN note text;')
    right = TenantSchemaManager(database, settings, migrations_folder=migrations_folder).migrate(actor="test")

    assert {result.change for result in right} == {Change.MIGRATED}
    assert query("SELECT count(DISTINCT checksum) FROM clientmgr.tenant_migrations WHERE version = 2") == [(1,)]


def test_a_release_older_than_the_schemas_is_refused(
    database: Database, settings: Settings, manager: TenantSchemaManager, migrations_folder: Path
) -> None:
    (migrations_folder / "0002_add_note.sql").write_text('ALTER TABLE :"schema".devices ADD COLUMN note text;')
    TenantSchemaManager(database, settings, migrations_folder=migrations_folder).activate([1], actor="test")

    with pytest.raises(MigrationError, match=r"0002_add_note\.sql was applied, but this release does not have it"):
        manager.migrate(actor="test")


def test_migrating_when_nothing_is_pending_costs_one_query_whatever_the_number_of_tenants(
    database: Database, settings: Settings, manager: TenantSchemaManager, migrations_folder: Path
) -> None:
    manager.activate(range(1, 31), actor="test")
    statements: list[str] = []

    class Watched(Database):
        def connect(self, role: Role, **options: Any) -> psycopg.Connection[Any]:
            connection = super().connect(role, **options)
            connection.cursor_factory = _recording_cursor(statements)
            return connection

    watched = TenantSchemaManager(Watched(database.url), settings, migrations_folder=migrations_folder)
    results = watched.migrate(actor="test")

    assert results == []
    asked = [statement for statement in statements if not statement.startswith("SET ")]
    assert len(asked) == 1


def test_the_no_op_query_looks_at_no_tenant_that_is_at_the_head(manager: TenantSchemaManager, query: Query) -> None:
    query(
        "INSERT INTO clientmgr.tenants (customer_id, status, schema_version, schema_digest) "
        "SELECT n, 'active', 1, %s FROM generate_series(1, 20000) AS n",
        manager.head_digest,
    )
    query("VACUUM ANALYZE clientmgr.tenants")
    from clientmgr.base.sqlfiles import named_queries

    sql = named_queries("tenants/queries/tenants.sql")["not_at_head"].replace("%(head)s", "%s")
    plan = "\n".join(row[0] for row in query(f"EXPLAIN (ANALYZE) {sql}", manager.head_digest, manager.head_digest))

    assert "Seq Scan" not in plan
    assert "Rows Removed by Filter" not in plan


def test_deletion_drops_the_schema_and_counts_what_went_with_it(manager: TenantSchemaManager, query: Query) -> None:
    manager.activate([7], actor="test")
    query(
        "INSERT INTO \"tenant_7\".devices (application_code, client_id) SELECT 'A', n FROM generate_series(1, 5) AS n"
    )

    result = manager.delete("7", actor="support")

    assert (result.change, result.rows_deleted) == (Change.DROPPED, 5)
    assert tables_of(query, "tenant_7") == set()
    assert status_of(query, 7) == "deleted"
    trail = query("SELECT actor, action, outcome, rows_affected FROM clientmgr.audit_log WHERE seq > 1 ORDER BY seq")
    assert trail == [
        ("support", "account.delete", "intended", None),
        ("support", "account.delete", "dropped", 5),
        ("support", "account.delete", "completed", None),
    ]


@pytest.mark.parametrize("known", [True, False], ids=["deleted before", "never registered"])
def test_deleting_what_is_not_there_is_recorded_as_already_absent(
    manager: TenantSchemaManager, query: Query, known: bool
) -> None:
    if known:
        manager.activate([7], actor="test")
        manager.delete(7, actor="test")

    assert manager.delete(7, actor="test").change is Change.ALREADY_ABSENT

    outcomes = [row[0] for row in query("SELECT outcome FROM clientmgr.audit_log ORDER BY seq")]
    assert outcomes[-3:] == ["intended", "already absent", "completed"]
    assert query("SELECT count(*) FROM clientmgr.tenants") == [(int(known),)]


def test_a_deletion_that_can_not_get_its_lock_fails_says_so_and_goes_on_when_asked_again(
    database: Database, settings: Settings, manager: TenantSchemaManager, query: Query
) -> None:
    manager.activate([7], actor="test")
    hasty = TenantSchemaManager(database, settings.model_copy(update={"tenant_lock_timeout_ms": 50}))
    with database.connect(Role.OWNER) as reader:
        reader.execute('SELECT * FROM "tenant_7".devices')

        result = hasty.delete(7, actor="test")

        assert result.change is Change.FAILED
        assert "lock timeout" in (result.error or "")
        assert status_of(query, 7) == "deleting"
    assert query("SELECT outcome FROM clientmgr.audit_log ORDER BY seq DESC LIMIT 1") == [("failed",)]

    assert manager.delete(7, actor="test").change is Change.DROPPED
    assert status_of(query, 7) == "deleted"


def test_an_activation_after_a_deletion_starts_clean(manager: TenantSchemaManager, query: Query) -> None:
    manager.activate([7], actor="test")
    query("INSERT INTO \"tenant_7\".devices (application_code, client_id) VALUES ('A', 'old')")
    manager.delete(7, actor="test")

    (result,) = manager.activate([7], actor="test")

    assert result.change is Change.CREATED
    assert query('SELECT count(*) FROM "tenant_7".devices') == [(0,)]
    assert query("SELECT deleted_at FROM clientmgr.tenants") == [(None,)]


def test_a_tenant_being_deleted_is_not_activated_meanwhile(manager: TenantSchemaManager, query: Query) -> None:
    manager.activate([7], actor="test")
    query("UPDATE clientmgr.tenants SET status = 'deleting'")

    (result,) = manager.activate([7], actor="test")

    assert result.change is Change.FAILED
    assert "deleting" in (result.error or "")


def test_results_arrive_one_by_one_for_a_progress_bar(manager: TenantSchemaManager) -> None:
    seen: list[int] = []
    manager.activate(range(1, 6), actor="test", on_result=lambda result: seen.append(result.customer_id))
    assert sorted(seen) == [1, 2, 3, 4, 5]


def _recording_cursor(statements: list[str]) -> type[psycopg.Cursor[Any]]:
    class RecordingCursor(psycopg.Cursor[Any]):
        def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
            statements.append(query.decode() if isinstance(query, bytes) else str(query))
            return super().execute(query, *args, **kwargs)

    return RecordingCursor


def test_a_missing_schema_that_can_not_be_created_is_a_result_and_stops_no_other(
    database: Database, settings: Settings, query: Query
) -> None:
    manager = TenantSchemaManager(database, settings.model_copy(update={"tenant_lock_timeout_ms": 100}))
    manager.activate([7, 8, 9], actor="test")
    for customer in (7, 8, 9):
        query(f'DROP SCHEMA "tenant_{customer}" CASCADE')
    with database.connect(Role.OWNER) as connection:
        connection.execute("SELECT FROM clientmgr.tenants WHERE customer_id = 7 FOR UPDATE")

        seven, eight = manager.restore_missing([CustomerId(7), CustomerId(8)], actor="test")

    assert (seven.change, eight.change) == (Change.FAILED, Change.CREATED)
    assert "lock timeout" in str(seven.error)
    assert tables_of(query, "tenant_8") == set(TABLES)
    assert tables_of(query, "tenant_9") == set(), "nobody asked for it: another run may be about to"
