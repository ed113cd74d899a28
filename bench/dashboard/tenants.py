"""Tenants with numbers and a past, and a log with readers, without a schema or a device: what the pages read."""

from clientmgr.base.database import Database, Role

NIGHTS = 14
TOPICS, READERS, MESSAGES = 20, 2, 2_000

_TENANTS = """
INSERT INTO clientmgr.tenant_migration_files (version, name, checksum) VALUES (1, 'one', 'x');
INSERT INTO clientmgr.tenants (customer_id, status, schema_version, activated_at)
SELECT 100000 + n, 'active', CASE WHEN n %% 100 = 0 THEN 0 ELSE 1 END, now() - interval '90 days'
FROM generate_series(1, %(tenants)s) AS n;
"""
_METRICS = """
INSERT INTO clientmgr.dashboard_tenant_metrics_history (
    customer_id, collected_at, run_id, status, schema_version, devices, devices_by_platform, devices_by_provider,
    push_enabled, push_enabled_share, tokens_none, tokens_valid, tokens_invalid, tokens_superseded, tokens_none_share,
    tokens_valid_share, tokens_invalid_share, tokens_superseded_share, contacts, linked_devices, without_contact,
    orphans,
    created_24h, created_7d, growth_24h, growth_7d, last_write_at, table_bytes, sync_status, sync_dynamodb_devices,
    sync_sampled, sync_missing_in_dynamodb, sync_missing_in_postgres, sync_different, sync_difference_share
)
SELECT t.customer_id, date_trunc('hour', now()) - make_interval(days => night), 'run', 'ok', 1, d.devices,
    jsonb_build_object('ios', d.devices / 2, 'android', d.devices / 3, 'web', d.devices / 6),
    jsonb_build_object('apple', d.devices / 2, 'fcm', d.devices / 2), d.devices / 2, 0.5, 10, d.devices / 2, 10, 1, 0.1,
    0.7, 0.1, 0.1, d.devices / 2, d.devices / 2, 10, d.devices / 100, 10, 70, 10, 70, now(), d.devices * 1000,
    'differs',
    d.devices, 100, 0, 0, 1, (hashtext(t.customer_id::text) & 1023) / 20000.0
FROM clientmgr.tenants AS t
CROSS JOIN generate_series(0, %(nights)s - 1) AS night
CROSS JOIN LATERAL (
    SELECT (abs(hashtext(t.customer_id::text || 'd')) %% 1000000) + (%(nights)s - night) * 10 AS devices
) AS d;
INSERT INTO clientmgr.dashboard_tenant_metrics
SELECT * FROM clientmgr.dashboard_tenant_metrics_history AS h
WHERE h.collected_at = (SELECT max(collected_at) FROM clientmgr.dashboard_tenant_metrics_history);
"""
_LOG = """
INSERT INTO clientmgr.log_counter (topic, next_offset)
SELECT 'topic-' || n, %(messages)s + 1 FROM generate_series(1, %(topics)s) AS n;
INSERT INTO clientmgr.consumer_offsets (group_id, topic_id, partition_id, next_offset)
SELECT 'group-' || c.id || '-' || r, c.id, p, 1 + (c.id + r) * 50
FROM clientmgr.log_counter AS c, generate_series(1, %(readers)s) AS r, generate_series(0, 15) AS p
WHERE c.topic LIKE 'topic-%%';
INSERT INTO clientmgr.outbox_message_t
    (topic_id, partition_id, c_offset, tx_last_offset, transaction_id, host_id, payload)
SELECT c.id, n %% 16, n, n, gen_random_uuid(), 'x', '{}'
FROM clientmgr.log_counter AS c, generate_series(1, %(messages)s) AS n WHERE c.topic LIKE 'topic-%%';
INSERT INTO clientmgr.dead_letter_queue (group_id, topic_id, c_offset, partition_id, host_id, user_id, transaction_id,
    payload, attributes, error_class, exception, attempts, published_at)
SELECT 'group-' || c.id || '-1', c.id, n, 0, 'x', '', gen_random_uuid(), '{}', '{}', 'Error', 'it broke', 3, now()
FROM clientmgr.log_counter AS c, generate_series(1, 50) AS n WHERE c.topic LIKE 'topic-%%';
"""


def fill(database: Database, tenants: int) -> None:
    numbers = {"tenants": tenants, "nights": NIGHTS, "topics": TOPICS, "readers": READERS, "messages": MESSAGES}
    with database.connect(Role.OWNER, autocommit=True) as connection:
        for text in (_TENANTS, _METRICS, _LOG):
            for statement in text.split(";\n"):
                if statement.strip():
                    connection.execute(statement.encode(), numbers)
        connection.execute("ANALYZE")
