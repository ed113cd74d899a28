-- name: append_history
-- A run that is done again finds its rows there.
-- Which clients differed is not kept: a device that is deleted must not live on in here.
INSERT INTO clientmgr.dashboard_tenant_metrics_history
SELECT kept.*
FROM clientmgr.dashboard_tenant_metrics AS m,
    LATERAL (
        SELECT coalesce(jsonb_agg(one - 'client_id'), '[]') AS differences
        FROM jsonb_array_elements(m.sync_differences) AS one
    ) AS nameless,
    LATERAL jsonb_populate_record(
        m, CASE WHEN m.sync_differences IS NULL THEN '{}'
            ELSE jsonb_build_object('sync_differences', nameless.differences) END
    ) AS kept
WHERE m.customer_id = ANY(%(customers)s::bigint [])
-- In order, or two runs wait for each other.
ORDER BY m.customer_id
ON CONFLICT (customer_id, collected_at) DO NOTHING;

-- name: summary
SELECT count(*), count(*) FILTER (WHERE status = 'failed'), coalesce(sum(devices), 0)::bigint,
    coalesce(sum(orphans), 0)::bigint, coalesce(sum(table_bytes), 0)::bigint
FROM clientmgr.dashboard_tenant_metrics;

-- name: lines
SELECT customer_id, status, devices, push_enabled_share, tokens_invalid_share, contacts, orphans, growth_24h,
    sync_status, sync_difference_share, failure
FROM clientmgr.dashboard_tenant_metrics
WHERE customer_id = ANY(%(customers)s::bigint [])
ORDER BY devices DESC NULLS FIRST, customer_id;

-- name: out_of_sync
SELECT customer_id, sync_difference_share FROM clientmgr.dashboard_tenant_metrics
WHERE sync_difference_share > %(tolerance)s
ORDER BY sync_difference_share DESC, customer_id;

-- name: sync_checked
SELECT
    count(*) FILTER (WHERE sync_status IN ('in sync', 'differs')),
    count(*) FILTER (WHERE sync_status = 'failed'),
    count(*) FILTER (WHERE sync_status = 'not checked')
FROM clientmgr.dashboard_tenant_metrics;

-- name: sync_failures
SELECT customer_id, coalesce(sync_failure, '') FROM clientmgr.dashboard_tenant_metrics
WHERE sync_status = 'failed'
ORDER BY customer_id
LIMIT %(limit)s;

-- name: sync_differences
-- Devices that differ, of the tenants that differ most. Not by client_id: it would outlive its device in Dagster's log.
SELECT m.customer_id, one ->> 'application_code', one ->> 'difference',
    array(SELECT jsonb_array_elements_text(one -> 'fields'))
FROM clientmgr.dashboard_tenant_metrics AS m, jsonb_array_elements(m.sync_differences) WITH ORDINALITY AS d (one, place)
ORDER BY m.sync_difference_share DESC, m.customer_id, d.place
LIMIT %(limit)s;

-- name: without_history
-- Who has no numbers yet is not missing here: its chunk may be the next. The dashboard shows who waits for too long.
SELECT m.customer_id FROM clientmgr.dashboard_tenant_metrics AS m
JOIN clientmgr.tenants AS t ON t.customer_id = m.customer_id AND t.status = 'active'
WHERE NOT EXISTS (
    SELECT FROM clientmgr.dashboard_tenant_metrics_history AS h
    WHERE h.customer_id = m.customer_id AND h.collected_at = m.collected_at
)
ORDER BY m.customer_id;

-- name: behind_on_migrations
SELECT customer_id, schema_version, head_version FROM clientmgr.dashboard_behind_on_migrations;
