-- What the writer of Spark's results does with `dashboard_tenant_metrics`.

-- name: staged
SELECT count(*) FROM clientmgr.dashboard_tenant_metrics_staged WHERE attempt_id = ANY(%(attempts)s::text []);

-- name: clear
DELETE FROM clientmgr.dashboard_tenant_metrics WHERE customer_id = ANY(%(customers)s::bigint []);

-- name: move
-- Only of tenants that are still active: one that was deleted while it was counted must not come back.
INSERT INTO clientmgr.dashboard_tenant_metrics
SELECT
    s.customer_id, s.collected_at, s.run_id, s.status, s.failure, t.schema_version,
    s.devices, s.devices_by_platform::jsonb, s.devices_by_provider::jsonb,
    s.push_enabled, s.push_enabled::double precision / nullif(s.devices, 0),
    s.tokens_none, s.tokens_valid, s.tokens_invalid, s.tokens_superseded,
    s.tokens_none::double precision / nullif(s.devices, 0),
    s.tokens_valid::double precision / nullif(s.devices, 0),
    s.tokens_invalid::double precision / nullif(s.devices, 0),
    s.tokens_superseded::double precision / nullif(s.devices, 0),
    s.contacts, s.linked_devices, s.without_contact, s.orphans, s.created_24h, s.created_7d,
    s.devices - day_ago.devices, s.devices - week_ago.devices,
    s.last_write_at, s.table_bytes,
    CASE
        WHEN s.sync_status <> 'checked' THEN s.sync_status
        WHEN sync.difference_share IS NULL THEN 'failed'
        WHEN sync.difference_share = 0 THEN 'in sync'
        ELSE 'differs'
    END,
    s.sync_dynamodb_devices, s.sync_sampled, s.sync_missing_in_dynamodb, s.sync_missing_in_postgres,
    s.sync_different, s.sync_different_fields::jsonb, sync.difference_share,
    CASE WHEN s.sync_status = 'checked' AND sync.difference_share IS NULL THEN s.failure ELSE s.sync_failure END,
    s.sync_differences::jsonb
FROM clientmgr.dashboard_tenant_metrics_staged AS s
JOIN clientmgr.tenants AS t ON t.customer_id = s.customer_id AND t.status = 'active'
-- Null where one of the stores could not be counted.
LEFT JOIN LATERAL (
    SELECT greatest(
        abs(s.linked_devices - s.sync_dynamodb_devices)::double precision
        / greatest(s.linked_devices, s.sync_dynamodb_devices, 1),
        (s.sync_missing_in_dynamodb + s.sync_missing_in_postgres + s.sync_different)::double precision
        / greatest(s.sync_sampled, 1)
    ) AS difference_share
    WHERE s.sync_status = 'checked' AND s.status = 'ok'
) AS sync ON true
-- The snapshot nearest to that time: two nightly runs are never exactly a day apart.
LEFT JOIN LATERAL (
    SELECT h.devices FROM clientmgr.dashboard_tenant_metrics_history AS h
    WHERE h.customer_id = s.customer_id AND h.status = 'ok'
        AND h.collected_at BETWEEN s.collected_at - interval '36 hours' AND s.collected_at - interval '18 hours'
    ORDER BY abs(extract(epoch FROM s.collected_at - h.collected_at) - 86400) LIMIT 1
) AS day_ago ON true
LEFT JOIN LATERAL (
    SELECT h.devices FROM clientmgr.dashboard_tenant_metrics_history AS h
    WHERE h.customer_id = s.customer_id AND h.status = 'ok'
        AND h.collected_at BETWEEN s.collected_at - interval '8 days' AND s.collected_at - interval '6 days'
    ORDER BY abs(extract(epoch FROM s.collected_at - h.collected_at) - 604800) LIMIT 1
) AS week_ago ON true
WHERE s.attempt_id = ANY(%(attempts)s::text []) AND s.customer_id = ANY(%(customers)s::bigint []);

-- name: forget
DELETE FROM clientmgr.dashboard_tenant_metrics_staged
WHERE attempt_id = ANY(%(attempts)s::text []) OR staged_at < now() - interval '1 day';
