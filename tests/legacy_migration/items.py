"""Items of the older system, and the table of a scan filled with them."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from psycopg.rows import dict_row

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.legacy_migration.events import StoredItem
from clientmgr.local.standins.legacy_devices import dynamodb_value


def stored_item(device_key: str, contact: object, **attributes: Any) -> StoredItem:
    """As a scan leaves it: the attributes are written as DynamoDB writes them."""
    keys = {"deviceKey": device_key, "contactKey": f"7#{contact}"}
    item = {name: dynamodb_value(value) for name, value in (keys | attributes).items()}
    return StoredItem(device_key, str(contact), json.dumps(item))


def put_scan(database: Database, customer_id: CustomerId, items: Iterable[StoredItem]) -> datetime:
    """What Spark's scan leaves behind: the items, and the note of how many they are."""
    scanned_at = datetime.now(UTC)
    rows = [(customer_id, one.device_key, one.contact_id, one.item, scanned_at) for one in items]
    with database.connect(Role.WRITER) as connection:
        connection.execute("DELETE FROM clientmgr.legacy_devices WHERE customer_id = %s", (customer_id,))
        connection.execute("DELETE FROM clientmgr.legacy_imports WHERE customer_id = %s", (customer_id,))
        connection.cursor().executemany("INSERT INTO clientmgr.legacy_devices VALUES (%s, %s, %s, %s, %s)", rows)
        connection.execute(
            "INSERT INTO clientmgr.legacy_imports (customer_id, run_id, scanned_at, items) VALUES (%s, 'test', %s, %s)",
            (customer_id, scanned_at, len(rows)),
        )
    return scanned_at


def noted(database: Database, customer_id: CustomerId) -> dict[str, Any]:
    """How far the import of the last scan is, and what the comparison came to."""
    with database.connect(Role.READER) as connection, connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute("SELECT * FROM clientmgr.legacy_imports WHERE customer_id = %s", (customer_id,))
        found = cursor.fetchone()
    assert found is not None
    return found
