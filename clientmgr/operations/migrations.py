"""Brings all that exists once per database to its newest version: control schema, log, results of batch work."""

from collections.abc import Sequence
from typing import Final

from clientmgr.base.database import Database, Role
from clientmgr.base.logs import get_logger
from clientmgr.base.migrations import apply_folders, ensure_database_grants
from clientmgr.tenants import customer_data

log = get_logger(__name__)

FOLDERS: Final = (
    "base",
    "audit",
    "tenants",
    "broker",
    "gateway",
    "live",
    "orphans",
    "contact_deletions",
    "tenant_metrics",
    "operations",
)
"""Of `sql/`, by the packages that own them, in the order in which they build on each other."""

# Any number that nobody else in this database takes. Two starts at once wait for each other here.
_ADVISORY_LOCK = 0x636C69656E74  # "client"


def migrate_database(database: Database, folders: Sequence[str] = FOLDERS) -> list[str]:
    """Apply what is pending. Returns the names of the files applied."""
    with database.connect(Role.OWNER, autocommit=True) as connection, connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_ADVISORY_LOCK,))
        connection.execute("SET LOCAL client_min_messages = warning")
        applied = apply_folders(connection, folders)
        ensure_database_grants(connection)
        customer_data.ensure_grants(connection)
    for name in applied:
        log.info("migration applied", migration=name)
    return applied
