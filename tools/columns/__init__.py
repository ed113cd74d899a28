"""The columns of the tables that assets name, read from a database that has every migration.

`make columns` writes them to `clientmgr_dagster/table_columns.json`. Code locations are loaded without a
database, so they can't be asked for there; a test compares.
"""

import json
from typing import Any

from psycopg import Connection

from clientmgr_dagster.catalogue import column_key
from clientmgr_dagster.definitions import defs

_COLUMNS = """
SELECT n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull
FROM pg_attribute AS a
JOIN pg_class AS c ON c.oid = a.attrelid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND n.nspname IN ('clientmgr', 'live', %(tenant)s) AND c.relname !~ '_staged$'
ORDER BY n.nspname, c.relname, a.attnum
"""


def named_tables() -> frozenset[str]:
    """The tables that assets say they keep their rows in."""
    specs = defs.resolve_all_asset_specs()
    return frozenset(key for spec in specs if (key := column_key(spec)))


def table_columns(connection: Connection[Any], tenant_schema: str, tables: frozenset[str]) -> str:
    """As JSON, for those of `tables` that there are; a tenant's stand under `tenant.`"""
    found: dict[str, list[tuple[str, str, bool]]] = {}
    for schema, table, name, kind, nullable in connection.execute(_COLUMNS, {"tenant": tenant_schema}):
        key = f"{'tenant' if schema == tenant_schema else schema}.{table}"
        if key in tables:
            found.setdefault(key, []).append((name, kind, nullable))
    lines = [f"  {json.dumps(table)}: {json.dumps(columns)}" for table, columns in sorted(found.items())]
    return "{\n" + ",\n".join(lines) + "\n}\n"
