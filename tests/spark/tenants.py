"""Tenants with devices made by SQL, and the plain SQL that results are compared with."""

from dataclasses import dataclass
from typing import Any

from clientmgr.base.customer_ids import CustomerId, quoted_schema
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.tenants.schema_manager import TenantSchemaManager

ORDINARY, HUGE, EMPTY, BROKEN = (CustomerId(number) for number in (11, 12, 13, 14))

# Every fourth device is without a contact, for a day longer than the one before it; every sixteenth for half a day.
_DEVICES = """
INSERT INTO {schema}.devices (
    device_hash, application_code, client_id, contact_id, platform, provider, push_enabled, push_token, push_token_kind,
    push_token_status, push_token_hash, orphaned_since, last_seen_at, last_seen_version, created_at, language,
    attributes
)
SELECT
    sha256(('device-' || n)::bytea), 'APP-' || n %% 2, 'c' || n, CASE WHEN n %% 4 > 0 THEN 1000 + n / 2 END,
    (ARRAY ['ios', 'android', 'web']) [n %% 3 + 1], (ARRAY ['apple', 'fcm', 'vapid']) [n %% 3 + 1],
    n %% 5 > 0, 'token-' || n, 'fcm_token', (ARRAY ['valid', 'valid', 'invalid']) [n %% 3 + 1],
    sha256(('token-' || n)::bytea),
    CASE WHEN n %% 16 = 0 THEN now() - interval '12 hours' WHEN n %% 4 = 0 THEN now() - n * interval '1 day' END,
    now() - n * interval '1 minute', 1763248000000 + n, now() - n * interval '1 hour', 'en',
    jsonb_build_object('n', n, 'note', 'é"\\')
FROM generate_series(%(first)s::integer, %(last)s::integer) AS n
"""


@dataclass(frozen=True)
class Tenants:
    """The tenants of one test's database."""

    database: Database
    settings: Settings

    def activate(self, *customers: CustomerId) -> None:
        TenantSchemaManager(self.database, self.settings).activate(customers, actor="test")

    def add_devices(self, customer: CustomerId, count: int, *, first: int = 1) -> None:
        self.query(_DEVICES.format(schema=quoted_schema(customer)), {"first": first, "last": first + count - 1})

    def make_all(self, *, huge: int = 20_000) -> tuple[CustomerId, ...]:
        """Four tenants; nobody can read the broken one."""
        everybody = (ORDINARY, HUGE, EMPTY, BROKEN)
        self.activate(*everybody)
        self.add_devices(ORDINARY, 200)
        self.add_devices(HUGE, huge)
        self.query(f"ANALYZE {quoted_schema(HUGE)}.devices")
        self.break_tenant(BROKEN)
        return everybody

    def break_tenant(self, customer: CustomerId) -> None:
        self.query(f"ALTER TABLE {quoted_schema(customer)}.devices RENAME TO devices_away")

    def mend_tenant(self, customer: CustomerId) -> None:
        self.query(f"ALTER TABLE {quoted_schema(customer)}.devices_away RENAME TO devices")

    def query(self, sql: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        """Run SQL as the owner and fetch what it gives."""
        with self.database.connect(Role.OWNER, autocommit=True) as connection:
            cursor = connection.execute(sql, parameters)
            return cursor.fetchall() if cursor.description is not None else []
