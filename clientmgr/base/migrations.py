"""Applies numbered SQL files that exist once per database, each once and in order; an edited one is refused by name.

Which folders there are, and in which order they build on each other, is `clientmgr.operations.migrations`' business.
Tenant schemas, of which there are thousands, are `clientmgr.tenants.schema_manager`'s.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection, sql

from clientmgr.base.errors import MigrationError
from clientmgr.base.sqlfiles import Migration, read_migrations, sql_root

APPLIED_AS: Final = {
    "base/0001_schema_and_roles.sql": "control/0001_schema_and_roles.sql",
    "tenants/0001_tenants.sql": "control/0002_tenants.sql",
    "audit/0001_audit_log.sql": "control/0003_audit_log.sql",
    "tenants/0003_flippers.sql": "control/0004_flippers.sql",
    "orphans/0001_orphan_exclusions.sql": "control/0005_orphan_exclusions.sql",
    "tenants/0002_wishes.sql": "lifecycle/0001_wishes.sql",
    "orphans/0002_orphans.sql": "batch/0001_orphans.sql",
    "contact_deletions/0001_contact_deletions.sql": "batch/0002_contact_deletions.sql",
    "tenant_metrics/0001_metrics.sql": "dashboard/0001_metrics.sql",
    "tenant_metrics/0002_views.sql": "dashboard/0002_views.sql",
    "tenant_metrics/0003_sync.sql": "dashboard/0003_sync.sql",
}
"""Files that had other names when they were first applied somewhere: databases know them by those. History, which never
grows: a new file is known by the name it has.
"""

ADVISORY_LOCK: Final = 0x636C69656E74  # "client"
"""Any number that nobody else in a database takes. Two migrations at once wait for each other at it."""

_NAME_PARTS = re.compile(r"(.+)/((\d{4})_.+)")

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

_DATABASE_GRANTS: Final = sql.SQL("""
DO $$
DECLARE
    wanted CONSTANT name := coalesce(nullif({database}, ''), current_database());
BEGIN
    -- Each node of a Citus cluster is told by itself.
    PERFORM set_config('citus.enable_ddl_propagation', 'off', true);
    IF NOT has_database_privilege('clientmgr_ddl', wanted, 'CREATE') THEN
        EXECUTE format('GRANT CREATE ON DATABASE %I TO clientmgr_ddl', wanted);
    END IF;
    -- Nobody needs temporary tables, and a reader is to write nothing at all.
    IF has_database_privilege('clientmgr_reader', wanted, 'TEMPORARY') THEN
        EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', wanted);
    END IF;
END
$$;
""")


@dataclass(frozen=True, slots=True)
class Identity:
    """How a database remembers a file that it has applied."""

    component: str
    version: int
    name: str


def identity_of(folder: str, file_name: str) -> Identity:
    path = f"{folder}/{file_name}"
    match = _NAME_PARTS.fullmatch(APPLIED_AS.get(path, path))
    if match is None:
        raise MigrationError(f"sql/{path}: a migration is named NNNN_what_it_does.sql")
    return Identity(match[1], int(match[3]), match[2])


def apply_folders(
    connection: Connection[tuple[Any, ...]], folders: Sequence[str], *, without: Collection[str] = ()
) -> list[str]:
    """Apply what is pending in these folders of `sql/`, in their order; returns the files' names.

    In the caller's transaction. `without`: files that stay pending.
    """
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (ADVISORY_LOCK,))
    connection.execute("SET LOCAL client_min_messages = warning")
    connection.execute(_BOOTSTRAP)
    rows = connection.execute("SELECT component, version, name, checksum FROM clientmgr.migrations")
    recorded = {(component, version): (name, checksum) for component, version, name, checksum in rows}
    applied = []
    for folder in folders:
        available = read_migrations(sql_root() / folder)
        identities = {migration.version: identity_of(folder, migration.name) for migration in available}
        _refuse_newer(recorded, folder, len(available))
        done = [
            (version, *recorded[identity.component, identity.version])
            for version, identity in identities.items()
            if (identity.component, identity.version) in recorded
        ]
        for migration in pending(done, available, f"sql/{folder}"):
            if f"{folder}/{migration.name}" in without:
                continue
            # Our own file, sent as one simple query: nothing from outside is ever put into it.
            connection.execute(migration.sql.encode())
            identity = identities[migration.version]
            connection.execute(
                "INSERT INTO clientmgr.migrations (component, version, name, checksum) VALUES (%s, %s, %s, %s)",
                (identity.component, identity.version, identity.name, migration.checksum),
            )
            applied.append(f"{folder}/{migration.name}")
    return applied


def ensure_database_grants(connection: Connection[Any], database: str = "") -> None:
    """Let clientmgr_ddl create schemas in this database (or the named one), and nobody temporary tables. No dump and no
    copy of a database carries rights on the database with it."""
    connection.execute(database_grants(database))


def database_grants(database: str = "") -> sql.Composed:
    return _DATABASE_GRANTS.format(database=sql.Literal(database))


def pending(recorded: Sequence[tuple[int, str, str]], available: Sequence[Migration], where: str) -> list[Migration]:
    """What of `available` is not yet in `recorded` (version, name, checksum). An edited or missing file is refused."""
    by_version = {migration.version: migration for migration in available}
    for version, name, checksum in recorded:
        file = by_version.get(version)
        if file is None:
            raise _missing(where, name)
        if file.checksum != checksum:
            raise MigrationError(
                f"{where}: {file.name} was edited after it was applied; put its old text back and add a new file"
            )
    done = {version for version, _, _ in recorded}
    return [migration for migration in available if migration.version not in done]


def _refuse_newer(recorded: Mapping[tuple[str, int], tuple[str, str]], folder: str, newest: int) -> None:
    """Refuse a database to which a newer release has applied files of this folder that we do not have."""
    for (component, version), (name, _) in recorded.items():
        if component == folder and version > newest:
            raise _missing(f"sql/{folder}", name)


def _missing(where: str, name: str) -> MigrationError:
    return MigrationError(f"{where}: {name} was applied, but this release does not have it: is it too old?")
