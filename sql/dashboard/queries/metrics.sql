-- name: append_history
-- A run that is done again finds its rows there.
INSERT INTO clientmgr.dashboard_tenant_metrics_history
SELECT * FROM clientmgr.dashboard_tenant_metrics
ON CONFLICT (customer_id, collected_at) DO NOTHING;

-- name: summary
SELECT count(*), count(*) FILTER (WHERE status = 'failed'), coalesce(sum(devices), 0)::bigint,
    coalesce(sum(orphans), 0)::bigint, coalesce(sum(table_bytes), 0)::bigint
FROM clientmgr.dashboard_tenant_metrics;

-- name: largest
SELECT customer_id, status, devices, push_enabled_share, tokens_invalid_share, contacts, orphans, growth_24h,
    sync_difference_share, failure
FROM clientmgr.dashboard_tenant_metrics
ORDER BY devices DESC NULLS FIRST, customer_id
LIMIT %(limit)s;

-- name: out_of_sync
SELECT customer_id, sync_difference_share FROM clientmgr.dashboard_tenant_metrics
WHERE sync_difference_share > %(tolerance)s
ORDER BY sync_difference_share DESC, customer_id;

-- name: sync_checked
SELECT count(*) FILTER (WHERE sync_status = 'checked'), count(*) FILTER (WHERE sync_status = 'failed')
FROM clientmgr.dashboard_tenant_metrics;

-- name: without_history
-- Who was activated since the last collection has no numbers yet.
SELECT t.customer_id FROM clientmgr.tenants AS t
LEFT JOIN clientmgr.dashboard_tenant_metrics AS m USING (customer_id)
WHERE t.status = 'active' AND t.activated_at <= (SELECT max(collected_at) FROM clientmgr.dashboard_tenant_metrics)
    AND NOT EXISTS (
        SELECT FROM clientmgr.dashboard_tenant_metrics_history AS h
        WHERE h.customer_id = m.customer_id AND h.collected_at = m.collected_at
    )
ORDER BY t.customer_id;

-- name: behind_on_migrations
SELECT customer_id, schema_version, head_version FROM clientmgr.dashboard_behind_on_migrations;
