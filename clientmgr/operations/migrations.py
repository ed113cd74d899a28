"""Brings everything that exists once per database to its newest version: a folder of `sql/` for each package."""

from collections.abc import Sequence
from typing import Final

from clientmgr.audit.log import PLATFORM, AuditEntry, AuditLogger
from clientmgr.base.citus import STAY_HERE
from clientmgr.base.database import Database, Role
from clientmgr.base.logs import get_logger
from clientmgr.base.migrations import apply_folders, ensure_database_grants
from clientmgr.base.sqlfiles import sql_root
from clientmgr.broker import publish_rights
from clientmgr.erasure import places
from clientmgr.operations.cluster import prepare_cluster
from clientmgr.tenants import customer_data

log = get_logger(__name__)

FIRST: Final = ("base", "audit", "tenants", "broker", "gateway")
"""Folders that others build on, in this order. The others build on these alone, and come by name."""
PER_TENANT: Final = "tenant"
"""Not applied here: the schema manager applies it to each tenant's schema."""

_BEGIN_THE_PLATFORMS_CHAIN = frozenset({"audit/0002_heads_are_kept.sql", "tenants/0001_tenants.sql"})
"""Each once in a database's life, and never again: later a chain that is missing was taken away. Where the log was used
as a library, its tables had the first of them long before the system came with the second."""


def folders() -> Sequence[str]:
    """Every folder of `sql/` that has migrations, in the order in which they are applied."""
    found = {file.parent.name for file in sql_root().glob("*/0001_*.sql")}
    return (*FIRST, *sorted(found.difference(FIRST, [PER_TENANT])))


def migrate_database(
    database: Database,
    chosen: Sequence[str] | None = None,
    *,
    audit: AuditLogger | None = None,
    citus: str = "auto",
) -> list[str]:
    """Apply what is pending, of all folders or of the chosen ones. Returns the names of the files applied.

    Where the database is a Citus coordinator, the cluster is made ready for tenants. With `audit`, the platform's chain
    begins here: a verification expects one in every database.
    """
    with database.connect(Role.OWNER, autocommit=True) as connection, connection.transaction():
        connection.execute(STAY_HERE)
        applied = apply_folders(connection, folders() if chosen is None else chosen)
        ensure_database_grants(connection)
        customer_data.ensure_grants(connection)
        places.ensure_grants(connection)
        publish_rights.ensure_grants(connection)
        if audit is not None and not _BEGIN_THE_PLATFORMS_CHAIN.isdisjoint(applied):
            audit.append(connection, [AuditEntry(PLATFORM, "migration", "database.migrate", "done")])
    prepare_cluster(database, citus)
    for name in applied:
        log.info("migration applied", migration=name)
    return applied
