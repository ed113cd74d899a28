"""PostgreSQL with Citus: is a database the coordinator of a cluster, over whose nodes tenants' schemas are spread?

Control tables, the log, the audit log and live positions stay on the coordinator: a schema is spread only if it is made
while `SPREAD_NEW_SCHEMAS` counts.
"""

from typing import Any, Final

from psycopg import Connection

from clientmgr.base.errors import SettingsError

SPREAD_NEW_SCHEMAS: Final = "SET LOCAL citus.enable_schema_based_sharding = on"
STAY_HERE: Final = "SET LOCAL citus.enable_ddl_propagation = off; SET LOCAL citus.enable_schema_based_sharding = off"
"""What is made in this transaction is made on the coordinator alone. Without Citus nothing reads these."""

IS_INSTALLED: Final = "SELECT EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'citus')"
_IS_COORDINATOR: Final = "SELECT pg_catalog.citus_is_coordinator()"


def spreads_tenants(connection: Connection[Any], wanted: str) -> bool:
    """Whether this database's tenants are spread over a cluster. `wanted`: the setting CITUS.

    One look at the catalogue where there is no Citus, so whoever asks keeps the answer.
    """
    if wanted == "off":
        return False
    if has_citus(connection):
        if connection.execute(_IS_COORDINATOR).fetchone() == (True,):
            return True
        raise SettingsError(
            f"{_named(connection)} is a worker of a Citus cluster: have DATABASE_URL name its coordinator"
        )
    if wanted == "on":
        raise SettingsError(
            f"CITUS=on, but {_named(connection)} has no extension citus. Make the cluster first (docs/citus.md), or "
            "set CITUS=off"
        )
    return False


def has_citus(connection: Connection[Any]) -> bool:
    return connection.execute(IS_INSTALLED).fetchone() == (True,)


def _named(connection: Connection[Any]) -> str:
    info = connection.info
    return f"PostgreSQL: database {info.dbname} on {info.host}:{info.port}"
