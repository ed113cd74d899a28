-- How the system as a whole stands, for the metrics. Each query is cheap enough for once a minute.

-- name: tenants
SELECT status, count(*) FROM clientmgr.tenants GROUP BY status;

-- name: work
-- Up to when each nightly work is done for every active tenant: the tenant that waits longest decides, and one that was
-- never looked at has waited since its activation. No row without an active tenant.
SELECT 'orphan_search', min(coalesce(s.searched_at, t.activated_at))
FROM clientmgr.tenants AS t
LEFT JOIN clientmgr.orphan_searches AS s USING (customer_id)
WHERE t.status = 'active'
HAVING count(*) > 0
UNION ALL
SELECT 'dashboard', min(coalesce(m.collected_at, t.activated_at))
FROM clientmgr.tenants AS t
LEFT JOIN clientmgr.dashboard_tenant_metrics AS m USING (customer_id)
WHERE t.status = 'active'
HAVING count(*) > 0
UNION ALL
SELECT 'audit_verification',
    coalesce((SELECT max(verified_at) FROM clientmgr.audit_verifications), min(t.activated_at))
FROM clientmgr.tenants AS t
WHERE t.status = 'active'
HAVING count(*) > 0;

-- name: tenants_in_trouble
-- Counted at most to a million: beyond that the number does not matter.
SELECT
    (SELECT count(*) FROM clientmgr.dashboard_tenant_metrics WHERE status = 'failed'),
    (
        SELECT count(*) FROM clientmgr.dashboard_tenant_metrics
        WHERE sync_status IN ('in sync', 'differs') AND sync_difference_share > %(sync_tolerance)s
    ),
    (SELECT count(*) FROM (SELECT FROM clientmgr.deleted_contacts WHERE published_at IS NULL LIMIT 1000000) AS waiting),
    (SELECT count(*) FROM clientmgr.contact_deletions_missed);

-- name: last_audit_verification
SELECT findings FROM clientmgr.audit_verifications ORDER BY verified_at DESC, id DESC LIMIT 1;
