"""What `clientmgr demo` fills the system with. Deterministic, and safe to run again on the same data."""

from clientmgr.database import Database, Role
from clientmgr.errors import ClientManagerError
from clientmgr.settings import Settings
from clientmgr.sqlfiles import named_queries
from clientmgr.tenants.names import CustomerId, quoted_schema
from clientmgr.tenants.schema_manager import SCHEMA_PLACEHOLDER, Change, TenantSchemaManager

DEMO_CUSTOMERS = (CustomerId(1001), CustomerId(1002), CustomerId(1003))
DEVICES_OF = {1001: 500, 1002: 120, 1003: 0}

_QUERIES = named_queries("control/queries/demo.sql")


def fill_with_demo_data(settings: Settings) -> None:
    """Three tenants: a large one, a small one, one without a device yet."""
    database = Database.from_settings(settings)
    results = TenantSchemaManager(database, settings).activate(DEMO_CUSTOMERS, actor="demo")
    if failed := [result for result in results if result.change is Change.FAILED]:
        raise ClientManagerError(f"demo tenant {failed[0].customer_id}: {failed[0].error}")
    with database.connect(Role.WRITER) as connection:
        for customer_id in DEMO_CUSTOMERS:
            query = _QUERIES["insert_devices"].replace(SCHEMA_PLACEHOLDER, quoted_schema(customer_id))
            connection.execute(query.encode(), {"devices": DEVICES_OF[customer_id]})
