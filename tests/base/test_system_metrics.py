"""How the system as a whole stands, in numbers: tenants, the nightly work, the audit log."""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import REGISTRY

from clientmgr.audit.verification import Finding, Verdict, record
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.operations.system_metrics import WORK, export_system_metrics
from clientmgr.tenants.schema_manager import TenantSchemaManager

pytestmark = pytest.mark.anyio

DAY = datetime(2026, 5, 1, tzinfo=UTC)
WORK_DONE = "clientmgr_batch_work_done_timestamp_seconds"


@pytest.fixture
def two_tenants(database: Database, settings_for: Callable[[Database], Settings]) -> Database:
    TenantSchemaManager(database, settings_for(database)).activate([1, 2], actor="test")
    execute(database, "UPDATE clientmgr.tenants SET activated_at = %s WHERE customer_id = 1", DAY)
    return database


def execute(database: Database, sql: str, *parameters: Any) -> None:
    with database.connect(Role.OWNER) as connection:
        connection.execute(sql.encode(), parameters)


async def told(database: Database, name: str, **labels: str) -> float | None:
    async with await database.connect_async(Role.READER, autocommit=True) as connection:
        await export_system_metrics(connection, sync_tolerance=0.01)
    return REGISTRY.get_sample_value(name, labels)


async def test_tenants_are_counted_by_status(two_tenants: Database) -> None:
    assert await told(two_tenants, "clientmgr_tenants", status="active") == 2
    assert await told(two_tenants, "clientmgr_tenants", status="deleted") == 0


@pytest.mark.parametrize("work", WORK)
async def test_work_that_was_never_done_waits_since_the_oldest_tenant_is_there(
    two_tenants: Database, work: str
) -> None:
    assert await told(two_tenants, WORK_DONE, work=work) == DAY.timestamp()


async def test_the_tenant_that_waits_longest_decides(two_tenants: Database) -> None:
    search = "INSERT INTO clientmgr.orphan_searches VALUES (%s, %s, 30, 0, 'r')"
    execute(two_tenants, search, 1, DAY.replace(day=5))
    execute(two_tenants, "UPDATE clientmgr.tenants SET activated_at = %s WHERE customer_id = 2", DAY.replace(day=3))
    assert await told(two_tenants, WORK_DONE, work="orphan_search") == DAY.replace(day=3).timestamp()
    execute(two_tenants, search, 2, DAY.replace(day=6))
    assert await told(two_tenants, WORK_DONE, work="orphan_search") == DAY.replace(day=5).timestamp()


async def test_without_tenants_no_work_is_waited_for(database: Database) -> None:
    assert await told(database, WORK_DONE, work="dashboard") is None


async def test_tenants_that_could_not_be_counted_or_differ_are_told(two_tenants: Database) -> None:
    collected = """
        INSERT INTO clientmgr.dashboard_tenant_metrics
            (customer_id, collected_at, run_id, status, sync_status, sync_difference_share)
        VALUES (%s, now(), 'r', %s, 'differs', %s)
    """
    execute(two_tenants, collected, 1, "failed", 0.5)
    execute(two_tenants, collected, 2, "ok", 0.001)
    assert await told(two_tenants, "clientmgr_tenants_not_counted") == 1
    assert await told(two_tenants, "clientmgr_tenants_out_of_sync") == 1


async def test_deletions_that_wait_to_be_published_are_told(two_tenants: Database) -> None:
    execute(two_tenants, "INSERT INTO clientmgr.deleted_contacts VALUES (1, 42, now(), now())")
    assert await told(two_tenants, "clientmgr_contact_deletions_waiting") == 1


async def test_deletions_that_are_missed_night_after_night_are_told(two_tenants: Database) -> None:
    search = """
        INSERT INTO clientmgr.contact_deletion_reconciliations (customer_id, run_id, searched_at, found, missed)
        VALUES (%s, %s, now() - %s * interval '1 day', 1, %s)
    """
    for customer, missed in ((1, (2, 1)), (2, (1, 0))):
        for days_ago, count in zip((1, 0), missed, strict=True):
            execute(two_tenants, search, customer, f"run-{days_ago}", days_ago, count)
    assert await told(two_tenants, "clientmgr_tenants_with_missed_deletions") == 1


async def test_the_last_verification_of_the_audit_log_counts(two_tenants: Database) -> None:
    assert math.isnan(await told(two_tenants, "clientmgr_audit_findings") or 0.0), "nobody has looked yet"
    with two_tenants.connect(Role.WRITER) as connection:
        record(connection, Verdict.of([Finding(1, 1, "row changed")] * 200))
    assert await told(two_tenants, "clientmgr_audit_findings") == 200
    with two_tenants.connect(Role.WRITER) as connection:
        record(connection, Verdict.of([]))
    assert await told(two_tenants, "clientmgr_audit_findings") == 0
