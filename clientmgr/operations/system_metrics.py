"""Gauges of the system as a whole, from the database: tenants, nightly jobs, the audit log.

One process that always runs exports them (`clientmgr.operations.maintenance`), whichever process does the jobs.
"""

from datetime import datetime
from typing import Any, Final

from prometheus_client import Gauge
from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from clientmgr.base.sqlfiles import named_queries
from clientmgr.erasure.schedule import erasure_lag_s
from clientmgr.tenants.registry import TenantStatus

WORK: Final = ("orphan_search", "dashboard", "audit_verification")
"""Values of the label `work`."""

_QUERIES = named_queries("operations/queries/standing.sql")

TENANTS: Final = Gauge("clientmgr_tenants", "Customers in the registry.", ["status"])
WORK_DONE_AT: Final = Gauge(
    "clientmgr_batch_work_done_timestamp_seconds",
    "Up to when work is done for every active tenant; where it never was, since when a tenant waits for it.",
    ["work"],
)
TENANTS_NOT_COUNTED: Final = Gauge(
    "clientmgr_tenants_not_counted", "Tenants whose numbers for the dashboard could not be collected last time."
)
TENANTS_OUT_OF_SYNC: Final = Gauge(
    "clientmgr_tenants_out_of_sync", "Tenants that differ from DynamoDB by more than SYNC_TOLERANCE."
)
CONTACT_DELETIONS_WAITING: Final = Gauge(
    "clientmgr_contact_deletions_waiting", "Deleted contacts found in BigQuery and not yet published."
)
AUDIT_FINDINGS: Final = Gauge(
    "clientmgr_audit_findings", "What the last verification of the whole audit log found wrong; 0 is intact."
)
ERASURE_LAG: Final = Gauge(
    "clientmgr_erasure_lag_seconds",
    "What was deleted longer ago than this is erased everywhere. ERASURE_HOURS bounds it.",
)


async def export_system_metrics(connection: AsyncConnection[Any], *, sync_tolerance: float) -> None:
    """Set all gauges of this module."""
    async with connection.cursor(row_factory=tuple_row) as cursor:
        counts: dict[str, int] = dict(await (await cursor.execute(_QUERIES["tenants"])).fetchall())
        done_at: dict[str, datetime] = dict(await (await cursor.execute(_QUERIES["work"])).fetchall())
        await cursor.execute(_QUERIES["tenants_in_trouble"], {"sync_tolerance": sync_tolerance})
        trouble = await cursor.fetchall()
        verified = await (await cursor.execute(_QUERIES["last_audit_verification"])).fetchone()
    ERASURE_LAG.set(await erasure_lag_s(connection))
    for status in TenantStatus:
        TENANTS.labels(status).set(counts.get(status, 0))
    for work in WORK:
        if work in done_at:
            WORK_DONE_AT.labels(work).set(done_at[work].timestamp())
        else:
            WORK_DONE_AT.remove(work)
    for gauge, value in zip(
        (TENANTS_NOT_COUNTED, TENANTS_OUT_OF_SYNC, CONTACT_DELETIONS_WAITING), *trouble, strict=True
    ):
        gauge.set(value)
    AUDIT_FINDINGS.set(verified[0] if verified else float("nan"))
