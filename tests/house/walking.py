"""What both walks need: a tenant in the database, and events that arrive in its tables."""

import json
from pathlib import Path
from typing import Any

import clientmgr
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.base.settings import load_settings
from clientmgr.contracts.device_events import decode_event
from clientmgr.devices.store import DeviceStore
from clientmgr.tenants.schema_manager import TenantSchemaManager
from tests.keys import TEST_KEY

CUSTOMER = CustomerId(7)
HASHES = KeyedHashes(TEST_KEY.encode())
CONTACT = 42
APPLICATION = "EMS11"
AT = 1763248000123


def activated(database_url: str, folder: str) -> Database:
    """The database, with our tenant in it."""
    database = Database(database_url)
    settings = load_settings(database_url=database_url, data_dir=Path(folder), audit_hash_key=TEST_KEY)
    TenantSchemaManager(database, settings).activate([CUSTOMER], actor="test")
    return database


def event(kind: str, client_id: str, at: int = AT, /, **payload: Any) -> bytes:
    """A message of the writer's topic."""
    message = {
        "eventId": "e",
        "eventType": f"client.{kind}",
        "customerId": CUSTOMER,
        "applicationCode": APPLICATION,
        "clientId": client_id,
        "occurredAt": at,
        "payload": payload,
    }
    return json.dumps(message).encode()


async def arrive(database: Database, *messages: bytes) -> None:
    async with await database.connect_async(Role.WRITER) as connection, connection.transaction():
        await DeviceStore(HASHES).apply_events(connection, {CUSTOMER: [decode_event(message) for message in messages]})


def tell(seen: dict[str, Any]) -> None:
    print(json.dumps({"code": clientmgr.__file__, **seen}))
