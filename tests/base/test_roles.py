"""Least privilege: what each database role can and can not do."""

from collections.abc import Callable

import psycopg
import pytest

from clientmgr.audit.log import AuditEntry, AuditLogger
from clientmgr.base.database import Database, Role
from clientmgr.base.logins import LOGINS
from clientmgr.base.settings import Settings
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from clientmgr.operations.migrations import migrate_database
from clientmgr.tenants.schema_manager import Change, TenantSchemaManager
from tests.keys import TEST_KEY

INSERT_DEVICE = "INSERT INTO \"tenant_5\".devices (application_code, client_id) VALUES ('A', 'c')"


@pytest.fixture
def tenant_database(database: Database, settings_for: Callable[[Database], Settings]) -> Database:
    TenantSchemaManager(database, settings_for(database)).activate([5], actor="test")
    return database


def attempt(database: Database, role: Role, statement: str) -> None:
    with database.connect(role) as connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        INSERT_DEVICE,
        'UPDATE "tenant_5".devices SET client_id = client_id',
        'DELETE FROM "tenant_5".devices',
        'TRUNCATE "tenant_5".devices',
        'DROP TABLE "tenant_5".devices',
        'DROP SCHEMA "tenant_5" CASCADE',
        "CREATE SCHEMA tenant_6",
        "CREATE TABLE public.mine ()",
        "UPDATE clientmgr.tenants SET status = 'deleted'",
        "SELECT clientmgr.lock_audit_chain(5)",
        "INSERT INTO clientmgr.audit_heads VALUES (5, 1, '')",
    ],
)
def test_the_reader_can_not_write(tenant_database: Database, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        attempt(tenant_database, Role.READER, statement)


def test_the_reader_reads_tenants_devices_and_the_audit_log(tenant_database: Database) -> None:
    for table in ("clientmgr.tenants", "clientmgr.audit_log", '"tenant_5".devices', '"tenant_5".push_token_claims'):
        attempt(tenant_database, Role.READER, f"SELECT * FROM {table}")


@pytest.mark.parametrize(
    "statement",
    [
        'DROP TABLE "tenant_5".devices',
        'DROP SCHEMA "tenant_5" CASCADE',
        'ALTER TABLE "tenant_5".devices ADD COLUMN x text',
        'TRUNCATE "tenant_5".devices',
        "CREATE SCHEMA tenant_6",
        "UPDATE clientmgr.tenants SET status = 'deleted'",
        "DELETE FROM clientmgr.tenant_migrations",
        "UPDATE clientmgr.audit_log SET outcome = 'x'",
        "DELETE FROM clientmgr.audit_log",
        "TRUNCATE clientmgr.audit_log",
        "ALTER TABLE clientmgr.audit_log DISABLE TRIGGER ALL",
        "DROP TRIGGER audit_log_unchanged ON clientmgr.audit_log",
        "UPDATE clientmgr.audit_heads SET seq = 0",
        "SET session_replication_role = replica",
    ],
)
def test_the_writer_can_neither_drop_nor_touch_the_audit_logs_past(tenant_database: Database, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        attempt(tenant_database, Role.WRITER, statement)


def test_the_writer_writes_rows_and_appends_to_the_audit_log(tenant_database: Database) -> None:
    attempt(tenant_database, Role.WRITER, INSERT_DEVICE)
    with tenant_database.connect(Role.WRITER) as connection:
        AuditLogger(TEST_KEY.encode()).append(connection, [AuditEntry(5, "test", "test", "done")])


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM clientmgr.tenants",
        "DROP TABLE clientmgr.audit_log",
        "ALTER TABLE clientmgr.audit_log DISABLE TRIGGER ALL",
        "UPDATE clientmgr.audit_heads SET seq = 0",
    ],
)
def test_the_schema_owner_can_not_touch_the_control_schema(tenant_database: Database, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        attempt(tenant_database, Role.DDL, statement)


def test_a_login_of_its_own_takes_the_place_of_the_role(
    tenant_database: Database, postgres_server: EmbeddedPostgres
) -> None:
    with psycopg.connect(postgres_server.superuser_url(), autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS reporting")
        connection.execute("CREATE ROLE reporting LOGIN PASSWORD 'secret' IN ROLE clientmgr_reader")
    host = tenant_database.url.partition("@")[2]
    database = Database(tenant_database.url, {Role.READER: f"postgresql://reporting:secret@{host}"})

    with database.connect(Role.READER) as connection:
        assert connection.execute('SELECT session_user, count(*) FROM "tenant_5".devices').fetchone() == (
            "reporting",
            0,
        )
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(INSERT_DEVICE)
    with psycopg.connect(postgres_server.superuser_url(), autocommit=True) as connection:
        connection.execute("DROP ROLE reporting")


@pytest.mark.usefixtures("database")  # whose set-up makes the roles: a plain owner may only be given them
def test_an_owner_that_is_no_superuser_can_set_all_up(
    postgres_server: EmbeddedPostgres, settings_for: Callable[[Database], Settings]
) -> None:
    with psycopg.connect(postgres_server.superuser_url(), autocommit=True) as connection:
        connection.execute("CREATE ROLE plain_owner LOGIN PASSWORD 'secret' CREATEROLE")
        for role in LOGINS:
            connection.execute(f"GRANT {role} TO plain_owner WITH ADMIN OPTION")
        connection.execute("CREATE DATABASE owned_by_a_plain_role OWNER plain_owner")
    host = postgres_server.url("owned_by_a_plain_role").partition("@")[2]
    database = Database(f"postgresql://plain_owner:secret@{host}")

    migrate_database(database)
    manager = TenantSchemaManager(database, settings_for(database))
    (activated,) = manager.activate([5], actor="test")
    deleted = manager.delete(5, actor="test")

    assert (activated.change, deleted.change) == (Change.CREATED, Change.DROPPED)
    with psycopg.connect(postgres_server.superuser_url(), autocommit=True) as connection:
        connection.execute("DROP DATABASE owned_by_a_plain_role WITH (FORCE)")
        connection.execute("DROP ROLE plain_owner")


@pytest.mark.parametrize("role", [Role.READER, Role.WRITER, Role.DDL])
def test_nobody_moves_a_chains_end_by_a_trigger_of_their_own(database: Database, role: Role) -> None:
    """The function runs as the owner: on a table of one's own it would take whatever rows one likes."""
    with database.connect(Role.WRITER) as connection:
        AuditLogger(TEST_KEY.encode()).append(connection, [AuditEntry(5, "test", "test", "done")])
    with database.connect(Role.OWNER) as connection:
        # Nobody has this right by default: the function's own rights must hold where an operator gave it.
        connection.execute(f"GRANT TEMPORARY ON DATABASE {connection.info.dbname} TO {role}")
    with database.connect(role) as connection:
        connection.execute("CREATE TEMP TABLE forged AS SELECT * FROM clientmgr.audit_log WHERE customer_id = 5")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(
                "CREATE TRIGGER t AFTER INSERT ON forged REFERENCING NEW TABLE AS appended "
                "FOR EACH STATEMENT EXECUTE FUNCTION clientmgr.append_to_audit_chain()"
            )
