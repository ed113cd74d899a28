"""Tenants with devices, and what the variants left: candidates and numbers, by tenant."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from bench.harness.keys import BENCH_KEY
from bench.harness.servers import BenchPostgres
from clientmgr.base.customer_ids import CustomerId, quoted_schema
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings, load_settings
from clientmgr.operations.migrations import migrate_database
from clientmgr.tenants.schema_manager import TenantSchemaManager

FIRST_TENANT = 1000
FEW = 5
NOW = datetime(2026, 11, 16, 2, 15, tzinfo=UTC)
"""Fixed, so that every run finds the same orphans."""
ORPHANED_BEFORE = NOW - timedelta(days=30)

# A quarter of the devices is without a contact, a third of those has been silent for long enough.
_DEVICES = """
INSERT INTO {schema}.devices (
    device_hash, application_code, client_id,
    hardware_id, contact_id, platform, provider, application_version, os_version,
    device_model, language, push_enabled, push_token, push_token_kind, push_token_status, push_token_hash,
    orphaned_since, last_seen_at, last_seen_version, created_at, updated_at, attributes
)
SELECT
    sha256(('device-' || n)::bytea),
    'APP-' || n %% 3, md5(n::text), md5((n + 1)::text), CASE WHEN n %% 4 > 0 THEN 1000 + n / 2 END,
    (ARRAY ['ios', 'android', 'web']) [n %% 3 + 1], (ARRAY ['apple', 'fcm', 'vapid']) [n %% 3 + 1],
    '4.' || n %% 20, '17.' || n %% 7, 'Model ' || n %% 50, (ARRAY ['en', 'de', 'fr']) [n %% 3 + 1], n %% 5 > 0,
    md5(n::text) || md5((n + 7)::text), 'fcm_token', (ARRAY ['valid', 'valid', 'valid', 'invalid']) [n %% 4 + 1],
    sha256(n::text::bytea),
    CASE WHEN n %% 4 = 0 THEN %(now)s::timestamptz - (n %% 45 + 0.5) * interval '1 day' END,
    %(now)s::timestamptz
    - CASE WHEN n %% 4 = 0 THEN n %% 45 * interval '1 day' ELSE n %% 1000 * interval '1 minute' END,
    1763248000000 + n,
    %(now)s::timestamptz - n %% 9000 * interval '1 hour', %(now)s::timestamptz - n %% 500 * interval '1 minute',
    jsonb_build_object('plan', 'basic', 'n', n)
FROM generate_series(1, %(devices)s::integer) AS n
"""

# The variants that know no table of ours write here.
_TABLES = """
CREATE SCHEMA bench;
CREATE UNLOGGED TABLE bench.orphans (
    customer_id bigint, application_code text, client_id text, silent_since timestamptz, found_at timestamptz
);
CREATE UNLOGGED TABLE bench.numbers (
    customer_id bigint, devices bigint, ios bigint, android bigint, web bigint, push_enabled bigint,
    tokens_valid bigint, tokens_invalid bigint, contacts bigint, linked_devices bigint, without_contact bigint,
    orphans bigint, created_24h bigint, created_7d bigint, last_write_at timestamptz
);
GRANT USAGE ON SCHEMA bench TO clientmgr_writer, clientmgr_reader;
GRANT ALL ON ALL TABLES IN SCHEMA bench TO clientmgr_writer;
"""

_RESULTS = {
    "orphan detection": """
        SELECT customer_id, count(*), md5(string_agg(
            application_code || client_id || extract(epoch FROM silent_since), ','
            ORDER BY application_code, client_id
        ))
        FROM (
            SELECT customer_id, application_code, client_id, silent_since FROM clientmgr.orphan_candidates
            UNION ALL
            SELECT customer_id, application_code, client_id, silent_since FROM bench.orphans
        ) AS found
        GROUP BY customer_id ORDER BY customer_id
    """,
    "dashboard collection": """
        SELECT customer_id, devices, (devices_by_platform ->> 'ios')::bigint,
            (devices_by_platform ->> 'android')::bigint, (devices_by_platform ->> 'web')::bigint, push_enabled,
            tokens_valid, tokens_invalid, contacts, linked_devices, without_contact, orphans, created_24h, created_7d,
            extract(epoch FROM last_write_at)
        FROM clientmgr.dashboard_tenant_metrics
        UNION ALL
        SELECT customer_id, devices, ios, android, web, push_enabled, tokens_valid, tokens_invalid, contacts,
            linked_devices, without_contact, orphans, created_24h, created_7d, extract(epoch FROM last_write_at)
        FROM bench.numbers
        ORDER BY customer_id
    """,
}


@dataclass(frozen=True)
class Workload:
    """A database with tenants that have devices."""

    name: str
    database: Database
    settings: Settings
    customers: tuple[CustomerId, ...]

    def few(self) -> "Workload":
        """The same with a few of its smallest tenants: for warming up, and for what a job costs by itself."""
        return self.with_customers(self.customers[-FEW:])

    def with_customers(self, customers: tuple[CustomerId, ...]) -> "Workload":
        return Workload(f"{len(customers)} tenants of {self.name}", self.database, self.settings, customers)

    def forget_results(self) -> None:
        with psycopg.connect(self.database.url, autocommit=True) as connection:
            connection.execute(
                "TRUNCATE clientmgr.orphan_candidates, clientmgr.dashboard_tenant_metrics, bench.orphans, bench.numbers"
            )

    def results(self, work: str) -> dict[CustomerId, object]:
        """What a variant found, by tenant."""
        with psycopg.connect(self.database.url) as connection:
            return {CustomerId(row[0]): row[1:] for row in connection.execute(_RESULTS[work].encode())}


def make_workload(server: BenchPostgres, name: str, *, tenants: int, devices: int, skewed_share: float) -> Workload:
    """The first tenant has `skewed_share` of the devices, if that is not 0; the others have equal parts of the rest."""
    server.create_database(name)
    database = Database(server.url(name))
    migrate_database(database)
    settings = load_settings(
        database_url=database.url, audit_hash_key=BENCH_KEY, log_level="error", sync_validation="off"
    )
    customers = tuple(CustomerId(FIRST_TENANT + number) for number in range(tenants))
    TenantSchemaManager(database, settings).activate(customers, actor="bench")
    with database.connect(Role.OWNER, autocommit=True) as connection:
        connection.execute(_TABLES.encode())
        for customer, count in zip(customers, _shares(tenants, devices, skewed_share), strict=True):
            put_devices(connection, customer, count)
        connection.execute("VACUUM ANALYZE")
    return Workload(name, database, settings, customers)


def put_devices(connection: psycopg.Connection[Any], customer: CustomerId, count: int) -> None:
    """So many rows of devices for a tenant that has none."""
    statement = _DEVICES.format(schema=quoted_schema(customer))
    connection.execute(statement.encode(), {"devices": count, "now": NOW})


def _shares(tenants: int, devices: int, skewed_share: float) -> Sequence[int]:
    if not skewed_share or tenants == 1:
        return [devices // tenants] * tenants
    first = int(devices * skewed_share)
    return [first, *[(devices - first) // (tenants - 1)] * (tenants - 1)]
