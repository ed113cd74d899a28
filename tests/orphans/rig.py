"""Two tenants with orphans that have been found, and the deletion run on them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from clientmgr.audit.log import AuditLogger
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.base.stopping import StillWanted, always_wanted
from clientmgr.orphans.deletion import OrphanDeletion, OrphanResult, record_searches
from clientmgr.orphans.policy import OrphanPolicy
from clientmgr.tenants.flippers import Flipper, set_flipper
from clientmgr.tenants.schema_manager import TenantSchemaManager
from tests.devices.histories import HASHES

ONE, TWO = CustomerId(1), CustomerId(2)
POLICY = OrphanPolicy(timedelta(days=30), max_share=0.9, guard_minimum=5, batch_size=4, retry_pause_s=0.001)

DEVICES = """
INSERT INTO "tenant_{customer}".devices (application_code, client_id, contact_id, orphaned_since, last_seen_version)
SELECT 'A', 'c' || n, CASE WHEN n > {orphans} THEN n END,
    CASE WHEN n <= {orphans} THEN now() - interval '40 days' END, 1000 + n
FROM generate_series(1, {devices}) AS n
"""
FIND = """
INSERT INTO clientmgr.orphan_candidates
SELECT {customer}, application_code, client_id, orphaned_since, now()
FROM "tenant_{customer}".devices WHERE contact_id IS NULL
"""
"""All that have no contact: which of them are orphans is for the deletion to tell."""


class Rig:
    """Two tenants that have left the legacy store."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.database, self.settings = database, settings
        TenantSchemaManager(database, settings).activate([ONE, TWO], actor="test")
        for flipper in Flipper:
            self.flip(flipper, on=True)

    def flip(self, flipper: Flipper, *, on: bool, customer: CustomerId | None = None) -> None:
        with self.database.connect(Role.WRITER) as connection:
            audit = AuditLogger.from_settings(self.settings)
            set_flipper(connection, audit, flipper, customer, enabled=on, actor="test")

    def fill(self, customer: int, *, devices: int = 20, orphans: int = 10) -> None:
        self.query(DEVICES.format(customer=customer, devices=devices, orphans=orphans))
        named = [(HASHES.device(customer, "A", f"c{n}"), f"c{n}") for n in range(1, devices + 1)]
        with self.database.connect(Role.OWNER) as connection, connection.cursor() as cursor:
            statement = f'UPDATE "tenant_{customer}".devices SET device_hash = %s WHERE client_id = %s'
            cursor.executemany(statement.encode(), named)
        self.find(customer)

    def find(self, customer: int) -> None:
        self.query(FIND.format(customer=customer))
        with self.database.connect(Role.WRITER) as connection:
            now = datetime.now(UTC)
            record_searches(connection, [CustomerId(customer)], searched_at=now, policy=POLICY, run_id="search")

    def run(
        self,
        *customers: CustomerId,
        policy: OrphanPolicy = POLICY,
        run_id: str = "r",
        still_wanted: StillWanted = always_wanted,
    ) -> list[OrphanResult]:
        return OrphanDeletion(
            self.database, self.settings, policy, run_id=run_id, actor="test", still_wanted=still_wanted
        ).run(customers)

    def clients(self, customer: int) -> set[str]:
        return {row[0] for row in self.query(f'SELECT client_id FROM "tenant_{customer}".devices')}

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with self.database.connect(Role.OWNER, autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description is not None else []
