-- What the dashboard shows of tenants. `chosen` is what a filter selects; `count` and `page` read from it.
-- :order is one of our own column lists (clientmgr/tenant_metrics/tenants.py), never text from outside.

-- name: chosen
SELECT
    t.customer_id, n.name, t.status, t.schema_version, head.version AS head_version, t.activated_at, t.deleted_at,
    m.collected_at, m.status AS collection, m.failure, m.devices, m.contacts, m.push_enabled_share,
    m.tokens_valid_share, m.tokens_invalid_share, m.orphans, m.growth_24h, m.growth_7d, m.last_write_at,
    m.table_bytes, coalesce(m.sync_status, 'not checked') AS sync_status, m.sync_difference_share
FROM clientmgr.tenants AS t
LEFT JOIN clientmgr.dashboard_tenant_metrics AS m USING (customer_id)
LEFT JOIN clientmgr.tenant_names AS n USING (customer_id)
CROSS JOIN (SELECT coalesce(max(version), 0) AS version FROM clientmgr.tenant_migration_files) AS head
WHERE (%(customer_id)s::bigint IS NULL OR t.customer_id = %(customer_id)s)
    AND (
        %(search)s::text IS NULL OR starts_with(t.customer_id::text, %(search)s)
        OR strpos(lower(n.name), lower(%(search)s)) > 0
    )
    AND CASE %(status)s::text WHEN 'any' THEN true WHEN 'present' THEN t.status <> 'deleted' ELSE t.status = %(status)s END
    AND CASE %(show)s::text
        WHEN 'failed' THEN m.status = 'failed'
        WHEN 'behind' THEN t.status IN ('activating', 'active') AND t.schema_version < head.version
        WHEN 'out-of-sync' THEN m.sync_difference_share > %(tolerance)s
        WHEN 'never-written' THEN m.status = 'ok' AND m.last_write_at IS NULL
        WHEN 'not-collected' THEN t.status = 'active' AND m.customer_id IS NULL
        ELSE true
    END

-- name: count
SELECT count(*) FROM chosen;

-- name: page
SELECT * FROM chosen ORDER BY :order LIMIT %(limit)s OFFSET %(offset)s;

-- name: numbers
SELECT m.collected_at, m.run_id, m.devices_by_platform, m.devices_by_provider, m.push_enabled, m.tokens_none,
    m.tokens_valid, m.tokens_invalid, m.tokens_superseded, m.tokens_none_share, m.tokens_superseded_share,
    m.linked_devices, m.without_contact, m.created_24h, m.created_7d, m.sync_dynamodb_devices, m.sync_sampled,
    m.sync_missing_in_dynamodb, m.sync_missing_in_postgres, m.sync_different, m.sync_different_fields,
    m.sync_failure, m.sync_differences
FROM clientmgr.dashboard_tenant_metrics AS m WHERE m.customer_id = %(customer_id)s;

-- name: history
-- Collections that succeeded, the newest first.
SELECT h.collected_at, h.devices, h.devices_by_platform, h.push_enabled_share, h.tokens_valid_share,
    h.tokens_invalid_share, h.tokens_none_share, h.tokens_superseded_share, h.contacts, h.orphans,
    h.sync_difference_share
FROM clientmgr.dashboard_tenant_metrics_history AS h
WHERE h.customer_id = %(customer_id)s AND h.status = 'ok'
    AND h.collected_at > now() - make_interval(days => %(days)s)
    AND (%(before)s::timestamptz IS NULL OR h.collected_at < %(before)s)
ORDER BY h.collected_at DESC LIMIT %(limit)s;

-- name: totals
-- All tenants together, in one pass over each table.
SELECT
    coalesce(sum(devices), 0)::bigint AS devices, coalesce(sum(contacts), 0)::bigint AS contacts,
    coalesce(sum(orphans), 0)::bigint AS orphans, coalesce(sum(table_bytes), 0)::bigint AS table_bytes,
    count(*) FILTER (WHERE status = 'failed') AS failed,
    count(*) FILTER (WHERE sync_difference_share > %(tolerance)s) AS out_of_sync,
    count(*) FILTER (WHERE sync_status IN ('in sync', 'differs')) AS sync_checked,
    max(collected_at) AS collected_at
FROM clientmgr.dashboard_tenant_metrics;

-- name: behind
SELECT count(*) FROM clientmgr.dashboard_behind_on_migrations;

-- name: orphans_of
-- The newest search and the newest run that was to delete them.
SELECT s.searched_at, s.candidates, s.threshold_days, r.outcome, r.deleted, r.spared, r.error, r.finished_at
FROM (SELECT %(customer_id)s::bigint AS customer_id) AS wanted
LEFT JOIN clientmgr.orphan_searches AS s USING (customer_id)
LEFT JOIN LATERAL (
    SELECT * FROM clientmgr.orphan_deletion_results AS d
    WHERE d.customer_id = wanted.customer_id ORDER BY d.finished_at DESC LIMIT 1
) AS r ON true;
