"""`python -m tools.columns`: migrate a database of its own, and write the columns of the tables that assets name."""

import secrets
import tempfile
from pathlib import Path

from clientmgr.base.customer_ids import CustomerId, schema_name
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import load_settings
from clientmgr.local.embedded.postgres import EmbeddedPostgres, PostgresTuning
from clientmgr.operations.migrations import migrate_database
from clientmgr.tenants.schema_manager import TenantSchemaManager
from clientmgr_dagster.catalogue import COLUMNS_FILE
from tools.columns import named_tables, table_columns

TENANT = CustomerId(1)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedPostgres(Path(folder), tuning=PostgresTuning(shared_buffers="16MB", fsync=False))
        server.start()
        try:
            settings = load_settings(
                database_url=server.url(), data_dir=Path(folder), audit_hash_key=secrets.token_hex(32)
            )
            database = Database.from_settings(settings)
            migrate_database(database)
            TenantSchemaManager(database, settings).activate([TENANT], actor="tools.columns")
            with database.connect(Role.OWNER) as connection:
                COLUMNS_FILE.write_text(table_columns(connection, schema_name(TENANT), named_tables()))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
