-- Tables that name devices without keeping messages.

-- name: customers_with_candidates
-- Each by one look into the key.
WITH RECURSIVE customers AS (
    (SELECT customer_id FROM clientmgr.orphan_candidates ORDER BY customer_id LIMIT 1)
    UNION ALL
    SELECT (
        SELECT c.customer_id FROM clientmgr.orphan_candidates AS c
        WHERE c.customer_id > customers.customer_id ORDER BY c.customer_id LIMIT 1
    ) FROM customers WHERE customers.customer_id IS NOT NULL
)
SELECT customer_id FROM customers WHERE customer_id IS NOT NULL;

-- name: forget_candidates
-- Who is there is asked first and by itself: on a Citus cluster devices may be on another node than candidates.
WITH there AS MATERIALIZED (
    SELECT d.application_code, d.client_id
    FROM clientmgr.orphan_candidates AS c JOIN :"schema".devices AS d USING (application_code, client_id)
    WHERE c.customer_id = %(customer_id)s
)

DELETE FROM clientmgr.orphan_candidates AS c
WHERE c.customer_id = %(customer_id)s AND NOT EXISTS (
    SELECT FROM there AS t WHERE (t.application_code, t.client_id) = (c.application_code, c.client_id)
);

-- name: sync_differences
SELECT customer_id, sync_differences FROM clientmgr.dashboard_tenant_metrics
WHERE jsonb_typeof(sync_differences) = 'array' AND sync_differences <> '[]';

-- name: replace_differences
-- Unless a new comparison has replaced them meanwhile.
UPDATE clientmgr.dashboard_tenant_metrics SET sync_differences = %(differences)s
WHERE customer_id = %(customer_id)s AND sync_differences = %(was)s;

-- name: forget_orphan_candidates_staged
DELETE FROM clientmgr.orphan_candidates_staged WHERE staged_at < now() - %(keep)s::interval;

-- name: forget_deleted_contacts_staged
DELETE FROM clientmgr.deleted_contacts_staged WHERE staged_at < now() - %(keep)s::interval;

-- name: forget_dashboard_tenant_metrics_staged
DELETE FROM clientmgr.dashboard_tenant_metrics_staged WHERE staged_at < now() - %(keep)s::interval;

-- name: forget_legacy_devices_staged
DELETE FROM clientmgr.legacy_devices_staged WHERE staged_at < now() - %(keep)s::interval;

-- name: forget_legacy_devices
DELETE FROM clientmgr.legacy_devices WHERE scanned_at < now() - %(keep)s::interval;
