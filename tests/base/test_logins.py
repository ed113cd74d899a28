"""A login for each role: nothing to fall back to, nothing mightier behind it, and refused wherever that is not so."""

import re
import stat
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg_pool import PoolTimeout

from clientmgr.audit.log import AuditLogger
from clientmgr.base.connection_rights import TooMightyError
from clientmgr.base.data_folder import attach
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import SettingsError
from clientmgr.base.logins import DAGSTER, LOGINS, made_logins, url_of
from clientmgr.base.private_files import ensure_private_folder
from clientmgr.base.settings import Settings, load_settings
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from clientmgr.local.embedded.postgres_logins import OWNER, take_over
from clientmgr.operations.dagster_addresses import dagster_database_url, ensure_dagster_login
from clientmgr.operations.migrations import migrate_database
from clientmgr.tenants.schema_manager import TenantSchemaManager
from tests.cli.calling import Cli
from tests.databases import database_on
from tests.keys import TEST_KEY

ROLES = (Role.DDL, Role.WRITER, Role.READER)
each_role = pytest.mark.parametrize("role", ROLES)


@pytest.fixture
def name(database: Database) -> str:
    return database.url.rpartition("/")[2]


@each_role
def test_no_role_finds_anything_mightier_to_act_as(database: Database, role: Role) -> None:
    with database.connect(role, autocommit=True) as connection:
        for way_back in ("SET ROLE NONE", "RESET ROLE", "RESET SESSION AUTHORIZATION", "DISCARD ALL"):
            connection.execute(way_back.encode())
            assert connection.execute("SELECT current_user, session_user").fetchone() == (role, role)
        for other in {"postgres", OWNER, *LOGINS, "pg_execute_server_program"} - {role}:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"SET ROLE {other}".encode())


FILES_AND_PROGRAMS = (
    "COPY (SELECT 1) TO PROGRAM 'cat'",
    "COPY (SELECT 1) TO '/tmp/one'",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_ls_dir('.')",
    "SELECT lo_import('/etc/passwd')",
    "CREATE TABLE public.mine ()",
    "CREATE TEMPORARY TABLE mine ()",
    "CREATE EXTENSION file_fdw",
    "ALTER ROLE CURRENT_USER CREATEROLE",
    "ALTER SYSTEM SET work_mem = '1GB'",
)


@pytest.mark.parametrize("login", [*ROLES, DAGSTER])
def test_no_login_reaches_the_server_s_files_and_programs(
    postgres_server: EmbeddedPostgres, name: str, login: str
) -> None:
    url = postgres_server.role_settings(name)[LOGINS[login]]
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in FILES_AND_PROGRAMS:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())


@each_role
def test_a_superuser_that_takes_a_role_is_refused(postgres_server: EmbeddedPostgres, name: str, role: Role) -> None:
    with pytest.raises(TooMightyError, match=r"postgres acts as clientmgr_\w+ but could act as postgres.*--logins"):
        Database(postgres_server.superuser_url(name)).connect(role)


def test_a_pooler_that_drops_options_makes_nobody_the_owner(
    postgres_server: EmbeddedPostgres, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked for at log-in does not arrive: the connection has the login's own rights."""
    dropped = re.compile(r"options='[^']*'")
    of_the_class = Database.conninfo
    monkeypatch.setattr(Database, "conninfo", lambda *given, **named: dropped.sub("", of_the_class(*given, **named)))
    with pytest.raises(TooMightyError, match=f"acts as {OWNER} and not as clientmgr_reader"):
        Database(postgres_server.url(name)).connect(Role.READER)
    with database_on(postgres_server, name).connect(Role.READER) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("clientmgr_reader",), "its own login needs none"


async def _connect(database: Database) -> None:
    await (await database.connect_async(Role.WRITER)).close()


async def _take_from_a_pool(database: Database) -> None:
    async with database.pool_async(Role.WRITER, size=1, timeout_s=0.5) as pool, pool.connection():
        pass


async def _take_from_a_pool_of_threads(database: Database) -> None:
    with database.pool(Role.WRITER, size=1) as pool, pool.connection(timeout=0.5):
        pass


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("how", "refused"),
    [(_connect, TooMightyError), (_take_from_a_pool, PoolTimeout), (_take_from_a_pool_of_threads, PoolTimeout)],
)
async def test_it_is_refused_however_it_connects(
    postgres_server: EmbeddedPostgres,
    name: str,
    how: Callable[[Database], Awaitable[None]],
    refused: type[Exception],
) -> None:
    await how(database_on(postgres_server, name))
    with pytest.raises(refused):
        await how(Database(postgres_server.superuser_url(name)))


def test_a_login_that_may_become_a_superuser_is_refused_too(
    postgres_server: EmbeddedPostgres, name: str, database: Database
) -> None:
    with psycopg.connect(postgres_server.superuser_url(), autocommit=True) as connection:
        connection.execute("CREATE ROLE admin LOGIN PASSWORD 'secret' NOINHERIT IN ROLE clientmgr_reader, postgres")
    try:
        url = url_of("admin", "secret", database.url)
        with pytest.raises(TooMightyError, match="admin acts as clientmgr_reader but could act as postgres"):
            Database("", {Role.READER: url}).connect(Role.READER)
    finally:
        with psycopg.connect(postgres_server.superuser_url(), autocommit=True) as connection:
            connection.execute("DROP ROLE admin")


def test_dagster_s_login_owns_its_schema_and_sees_nothing_of_ours(
    postgres_server: EmbeddedPostgres, database: Database, name: str
) -> None:
    with psycopg.connect(postgres_server.role_settings(name)[LOGINS[DAGSTER]], autocommit=True) as connection:
        connection.execute("CREATE TABLE runs (id int)")
        assert connection.execute("SELECT to_regclass('dagster.runs')::text").fetchone() == ("runs",)
        for statement in ("SELECT FROM clientmgr.tenants", "SELECT FROM clientmgr.audit_log", "CREATE SCHEMA mine"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())
    with pytest.raises(TooMightyError):
        ensure_dagster_login(load_settings(database_url=postgres_server.superuser_url(name)))
    assert "role%3Dclientmgr_dagster" in dagster_database_url(load_settings(database_url=database.url))


RIGHTS = """
WITH roles AS (SELECT unnest(%(roles)s::text []) AS role),
tables AS (
    SELECT c.oid, CASE WHEN n.nspname ~ '^tenant_' THEN 'tenant tables' WHEN c.relname IN ('audit_log', 'audit_heads')
        THEN c.relname::text WHEN c.relname IN ('tenants', 'migrations') THEN c.relname::text
        ELSE n.nspname || ' tables' END AS what
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname ~ '^(clientmgr|live|dagster|tenant_[0-9]+)$' AND c.relkind IN ('r', 'p')
)
SELECT what, role, string_agg(DISTINCT left(privilege, 1), '' ORDER BY left(privilege, 1))
FROM tables, roles, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) AS privilege
WHERE has_table_privilege(role, oid, privilege) GROUP BY what, role
UNION ALL
SELECT 'database', role, string_agg(privilege, ' ' ORDER BY privilege)
FROM roles, unnest(ARRAY['CREATE', 'TEMPORARY']) AS privilege
WHERE has_database_privilege(role, current_database(), privilege) GROUP BY role
UNION ALL
SELECT 'schema ' || nspname, role, 'CREATE' FROM pg_namespace, roles
WHERE nspname IN ('public', 'clientmgr', 'live', 'dagster') AND has_schema_privilege(role, nspname, 'CREATE')
"""

EXPECTED = """
what              | clientmgr_ddl | clientmgr_writer | clientmgr_reader | clientmgr_dagster
audit_heads       | S             | S                | S                |
audit_log         | IS            | IS               | S                |
clientmgr tables  | DISU          | DISU             | S                |
database          | CREATE        |                  |                  |
live tables       |               | DISU             | S                |
migrations        |               |                  | S                |
schema dagster    |               |                  |                  | CREATE
tenant tables     | DISTU         | DISU             | S                |
tenants           | ISU           | S                | S                |
"""
"""What any table of a kind allows: Delete, Insert, Select, Truncate, Update.

clientmgr_ddl owns the tables of tenants, so it reads their rows too: PostgreSQL has no owner who can not.
"""


def test_the_roles_have_these_rights_and_no_others(
    database: Database, settings_for: Callable[[Database], Settings]
) -> None:
    TenantSchemaManager(database, settings_for(database)).activate([5], actor="test")
    with database.connect(Role.OWNER) as connection:
        rows = connection.execute(RIGHTS, {"roles": list(LOGINS)}).fetchall()
    found = {(what, role): rights for what, role, rights in rows}
    lines = [["what", *LOGINS]]
    lines += [[what, *(found.get((what, role), "") for role in LOGINS)] for what in sorted({what for what, _ in found})]
    expected = [[cell.strip() for cell in line.split("|")] for line in EXPECTED.strip().splitlines()]
    assert lines == expected


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A server that is not ours to set up: its administrator gave us a superuser's login and nothing else."""
    server = EmbeddedPostgres(tmp_path_factory.mktemp("foreign"))
    server.start()
    with psycopg.connect(server.superuser_url(), autocommit=True) as connection:
        connection.execute('DROP DATABASE "clientmgr"')
        for login in (*LOGINS, OWNER):
            connection.execute(f"DROP ROLE {login}")
        connection.execute('CREATE DATABASE "theirs"')
    yield load_settings(database_url=server.superuser_url("theirs"), data_dir=tmp_path_factory.mktemp("data"))
    server.stop()


@pytest.mark.server
def test_logins_are_made_on_a_server_that_is_not_ours(foreign: Settings, tmp_path: Path) -> None:
    cli = Cli({"DATABASE_URL": foreign.database_url, "DATA_DIR": str(foreign.data_dir), "AUDIT_HASH_KEY": TEST_KEY})
    cli.ok("migrate")
    refused = cli("tenants", "list")
    assert (refused.code, "clientmgr migrate --logins" in refused.err) == (2, True), refused.err

    ready = made_logins(foreign)
    with Database.from_settings(ready).connect(Role.WRITER) as connection:
        assert connection.execute("SELECT session_user").fetchone() == ("clientmgr_writer",)
    assert made_logins(foreign) == ready, "they are kept"
    with pytest.raises(SettingsError, match="DATABASE_DDL_URL: not set, and the password of clientmgr_ddl is not the"):
        made_logins(foreign.model_copy(update={"data_dir": tmp_path}))

    cli.ok("migrate", "--logins")
    file = foreign.data_dir / "database_logins.env"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    written = dict(line.split("=", 1) for line in file.read_text().splitlines())
    least = Cli({**written, "DATA_DIR": str(foreign.data_dir), "AUDIT_HASH_KEY": TEST_KEY})
    least.ok("tenants", "activate", "7")
    assert [one["customer_id"] for one in least.ok("tenants", "list", "--json").json] == [7]
    assert "DATABASE_URL: not set" in least("migrate").err

    with psycopg.connect(foreign.database_url, autocommit=True) as connection:
        connection.execute("ALTER ROLE clientmgr_reader CREATEROLE")
    with pytest.raises(SettingsError, match="the login clientmgr_reader has rights of a superuser, or may make roles"):
        made_logins(foreign)


@pytest.mark.server
def test_what_an_older_release_s_superuser_owned_goes_to_the_owner(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres")
    server.start()
    try:
        with psycopg.connect(server.superuser_url(), autocommit=True) as connection:
            connection.execute('ALTER DATABASE "clientmgr" OWNER TO postgres')
        migrate_database(Database(server.superuser_url("clientmgr")), audit=AuditLogger(TEST_KEY.encode()))
        with psycopg.connect(server.superuser_url("clientmgr"), autocommit=True) as connection:
            connection.execute("ALTER SCHEMA dagster OWNER TO postgres")
            connection.execute("CREATE TABLE dagster.runs (id serial)")
            take_over(connection)
            left = connection.execute(
                """
                SELECT c.oid::regclass::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                WHERE n.nspname IN ('clientmgr', 'live', 'dagster') AND c.relowner = 'postgres'::regrole
                UNION ALL SELECT p.oid::regprocedure::text FROM pg_proc AS p
                WHERE p.pronamespace = 'clientmgr'::regnamespace AND p.proowner = 'postgres'::regrole
                """
            ).fetchall()
        assert left == []
        assert migrate_database(Database(server.url())) == []
        settings = load_settings(
            database_url=server.url(), data_dir=tmp_path, audit_hash_key=TEST_KEY, **server.role_settings()
        )
        assert TenantSchemaManager(Database.from_settings(settings), attach(settings)).activate([5], actor="test")
        assert Cli(settings.environment()).ok("audit", "verify", "--json").json["intact"] is True
    finally:
        server.stop()


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o777, 0o701])
def test_the_data_folder_is_closed_to_others(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(mode)
    ensure_private_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) & 0o066 == 0
    ensure_private_folder(tmp_path / "new" / "data")
    assert stat.S_IMODE((tmp_path / "new" / "data").stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_a_data_folder_of_somebody_else_is_refused_even_where_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(mode)
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    with pytest.raises(SettingsError, match=r"\(DATA_DIR\) belongs to user .* and this runs as user 12345"):
        ensure_private_folder(folder)
