"""Items of the older system's table, and customers whose migration has begun."""

from collections.abc import Iterable

from clientmgr.audit.log import AuditLogger
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Role
from clientmgr.legacy_migration.moving import back
from clientmgr.legacy_migration.stages import Stage
from clientmgr.local.standins.legacy_devices import Item, dynamodb_value
from tests.spark.tenants import Tenants


def items_of(customer: CustomerId, count: int, **attributes: object) -> list[Item]:
    return [
        {
            name: dynamodb_value(value)
            for name, value in {
                "contactKey": f"{customer}#{100 + n}",
                "deviceKey": f"APP#c{n}",
                "platform": "ios",
                "kind": "fcm_token",
                "pushToken": f"token-{customer}-{n}",
                "updatedAt": 1_700_000_000_000 + n,
                **attributes,
            }.items()
        }
        for n in range(count)
    ]


def begin_migration(tenants: Tenants, customers: Iterable[CustomerId]) -> None:
    """Of customers whose mapper reads PostgreSQL, as for all in these tests: so they are taken back to it."""
    audit = AuditLogger.from_settings(tenants.settings)
    for customer in customers:
        with tenants.database.connect(Role.WRITER) as connection:
            back(connection, audit, tenants.settings, customer, actor="test", to=Stage.IMPORTING)
