"""Applies the numbered SQL files that exist once per database: `sql/control/`, `sql/broker/` and the like.

Tenant schemas, of which there are thousands, are `clientmgr.tenants.schema_manager`'s business.
"""

from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from clientmgr.database import Database, Role
from clientmgr.errors import MigrationError
from clientmgr.logs import get_logger
from clientmgr.sqlfiles import Migration, read_migrations, sql_root
from clientmgr.tenants import belongings

log = get_logger(__name__)

# In the order they build on each other.
COMPONENTS = ("control", "broker", "gateway", "lifecycle", "live", "batch", "dashboard", "operations")

# Any number that nobody else in this database takes. Two starts at once wait for each other here.
_ADVISORY_LOCK = 0x636C69656E74  # "client"

_BOOTSTRAP = """
CREATE SCHEMA IF NOT EXISTS clientmgr;
CREATE TABLE IF NOT EXISTS clientmgr.migrations (
    component text NOT NULL,
    version integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (component, version)
);
"""

_DATABASE_GRANTS = """
DO $$
BEGIN
    IF NOT has_database_privilege('clientmgr_ddl', current_database(), 'CREATE') THEN
        EXECUTE format('GRANT CREATE ON DATABASE %I TO clientmgr_ddl', current_database());
    END IF;
END
$$;
"""


def migrate_database(database: Database, components: Sequence[str] = COMPONENTS) -> list[str]:
    """Bring the control schema and its kin to their newest version. Returns the names of the files applied."""
    applied: list[str] = []
    with database.connect(Role.OWNER, autocommit=True) as connection, connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_ADVISORY_LOCK,))
        connection.execute("SET LOCAL client_min_messages = warning")
        connection.execute(_BOOTSTRAP)
        for component in components:
            applied += _apply_pending(connection, component, read_migrations(sql_root() / component))
        ensure_database_grants(connection)
        belongings.ensure_grants(connection)
    for name in applied:
        log.info("migration applied", migration=name)
    return applied


def ensure_database_grants(connection: Connection[Any]) -> None:
    """Let clientmgr_ddl create schemas here. Neither a dump nor a copy of a database carries that grant with it."""
    connection.execute(_DATABASE_GRANTS)


def pending(recorded: Sequence[tuple[int, str, str]], available: Sequence[Migration], where: str) -> list[Migration]:
    """What of `available` is not yet in `recorded` (version, name, checksum). An edited or missing file is refused."""
    by_version = {migration.version: migration for migration in available}
    for version, name, checksum in recorded:
        file = by_version.get(version)
        if file is None:
            raise MigrationError(f"{where}: {name} was applied, but this release does not have it: is it too old?")
        if file.checksum != checksum:
            raise MigrationError(
                f"{where}: {file.name} was edited after it was applied; put its old text back and add a new file"
            )
    done = {version for version, _, _ in recorded}
    return [migration for migration in available if migration.version not in done]


def _apply_pending(
    connection: Connection[tuple[Any, ...]], component: str, available: Sequence[Migration]
) -> list[str]:
    recorded = connection.execute(
        "SELECT version, name, checksum FROM clientmgr.migrations WHERE component = %s ORDER BY version", (component,)
    ).fetchall()
    names = []
    for migration in pending([(row[0], row[1], row[2]) for row in recorded], available, f"sql/{component}"):
        # Our own file, sent as one simple query: nothing from outside is ever put into it.
        connection.execute(migration.sql.encode())
        connection.execute(
            "INSERT INTO clientmgr.migrations (component, version, name, checksum) VALUES (%s, %s, %s, %s)",
            (component, migration.version, migration.name, migration.checksum),
        )
        names.append(f"{component}/{migration.name}")
    return names
