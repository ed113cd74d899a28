"""Whose devices are imported: for the schedules, and for whoever must not forget what an import could bring back."""

from datetime import datetime
from typing import Any, Final

from psycopg import Connection
from psycopg.rows import tuple_row

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.sqlfiles import named_queries
from clientmgr.legacy_migration.stages import IMPORTED

QUERIES: Final = named_queries("legacy_migration/queries/migrations.sql")


def customers_to_import(connection: Connection[Any]) -> dict[CustomerId, datetime]:
    """Those that somebody started and nobody has scanned since, each with when it was started."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        return dict(cursor.execute(QUERIES["to_import"]).fetchall())


def customers_being_imported(connection: Connection[Any]) -> set[CustomerId]:
    """Those whose items are imported every night, since somebody started it."""
    wanted = {"stages": sorted(IMPORTED)}
    with connection.cursor(row_factory=tuple_row) as cursor:
        return {CustomerId(customer) for (customer,) in cursor.execute(QUERIES["being_imported"], wanted)}
