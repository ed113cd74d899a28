"""What the demo's BigQuery and DynamoDB hold: contacts that customers deleted; devices as an older system has them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.devices.lookup import DeviceLookup
from clientmgr.local.standins.bigquery import BigQueryStandIn
from clientmgr.local.standins.dynamodb import DynamoDbStandIn
from clientmgr.local.standins.legacy_devices import Item, legacy_items
from clientmgr.tenant_metrics.sync import sample_hash

CONTACTS_DELETED = 5
LOST_LANGUAGE, LOST_DEVICE, OLD_VERSION = 3, 7, 11
"""Places in a tenant's sample: of each of these devices the older system has not heard the last."""

ItemKey = tuple[str, str]


class LegacyMirror:
    """An older system that hears of everything that happens to devices, a moment later, and has missed a few things."""

    def __init__(
        self, server: DynamoDbStandIn, table: str, database: Database, customers: Sequence[CustomerId]
    ) -> None:
        self._server, self._table = server, table
        self._database = database
        self._customers = customers
        self._known: dict[ItemKey, Item] = {}

    def refresh(self) -> int:
        """Write what has changed since the last time. Returns how many items did."""
        with self._database.connect(Role.READER) as connection:
            found = [item for customer in self._customers for item in self._items(connection, customer)]
        wanted = {_key(item): item for item in found}
        changed = [item for key, item in wanted.items() if self._known.get(key) != item]
        gone = self._known.keys() - wanted.keys()
        self._server.put(self._table, changed)
        self._server.delete(self._table, [_key_item(key) for key in gone])
        self._known = wanted
        return len(changed) + len(gone)

    def _items(self, connection: Any, customer: CustomerId) -> Iterable[Item]:
        items = list(legacy_items(connection, customer))
        items.sort(key=lambda item: sample_hash(str(customer), item["deviceKey"]["S"]))
        return with_differences(items)


def with_differences(items: Sequence[Item]) -> list[Item]:
    """The items, sorted as the sample is, with three of them as the older system would have them."""
    different: Mapping[int, Item | None] = {
        LOST_LANGUAGE: {"language": {"S": "tlh"}},
        LOST_DEVICE: None,
        OLD_VERSION: {"applicationVersion": {"S": "0.9"}},
    }
    found = []
    for place, item in enumerate(items):
        change = different.get(place, {})
        if change is not None:
            found.append({**item, **change})
    return found


def fill_deleted_contacts(
    server: BigQueryStandIn, table: str, database: Database, customers: Sequence[CustomerId]
) -> dict[CustomerId, int]:
    """Some contacts of each customer, deleted just now. Returns how many of whom."""
    chosen = []
    for customer in customers:
        with database.connect(Role.READER) as connection:
            lookup = DeviceLookup(connection, customer)
            chosen += [(customer, contact) for contact in lookup.some_contacts(limit=CONTACTS_DELETED)]
    server.execute(f"CREATE TABLE IF NOT EXISTS {table} (customer_id INT64, contact_id INT64, deleted_at TIMESTAMP)")
    if chosen:
        rows = ", ".join(f"({customer:d}, {contact:d}, CURRENT_TIMESTAMP())" for customer, contact in chosen)
        server.execute(f"INSERT INTO {table} (customer_id, contact_id, deleted_at) VALUES {rows}")
    return {customer: sum(1 for one, _ in chosen if one == customer) for customer in customers}


def _key(item: Item) -> ItemKey:
    return item["contactKey"]["S"], item["deviceKey"]["S"]


def _key_item(key: ItemKey) -> Item:
    return {"contactKey": {"S": key[0]}, "deviceKey": {"S": key[1]}}
