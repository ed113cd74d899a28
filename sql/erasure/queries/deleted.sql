-- What is deleted. Queries that say :"schema" are for one tenant.

-- name: accounts
-- Deleted accounts, and those that came back: what was published before somebody asked for that is of the deleted one.
-- The audit log alone still knows of a deletion after the customer is back.
SELECT t.customer_id, coalesce(t.deleted_at, t.updated_at) AS deleted_at,
    CASE WHEN w.wish = 'active' THEN w.asked_at END AS back_at
FROM clientmgr.tenants AS t LEFT JOIN clientmgr.tenant_wishes AS w USING (customer_id)
WHERE t.status = 'deleted'
UNION ALL
SELECT t.customer_id, a.deleted_at, w.asked_at
FROM (
    SELECT l.customer_id, max(l.recorded_at) AS deleted_at FROM clientmgr.audit_log AS l
    WHERE l.recorded_at > now() - interval '60 days' AND l.action = 'account.delete' AND l.outcome = 'completed'
    GROUP BY l.customer_id
) AS a
JOIN clientmgr.tenants AS t ON t.customer_id = a.customer_id AND t.status IN ('activating', 'active')
JOIN clientmgr.tenant_wishes AS w ON w.customer_id = a.customer_id AND w.wish = 'active';

-- name: tenants
-- Those whose schemas know deletions by hash; the others' migration is still to come.
SELECT clientmgr.customer_of_schema(n.nspname)
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'contact_hash' AND NOT a.attisdropped
WHERE c.relname = 'contact_tombstones' AND clientmgr.customer_of_schema(n.nspname) IS NOT NULL
ORDER BY 1;

-- name: standing
-- Whether the tenant has deletions, and whether it has any that were recorded since.
SELECT
    EXISTS (SELECT FROM :"schema".contact_tombstones) OR EXISTS (SELECT FROM :"schema".device_tombstones),
    EXISTS (SELECT FROM :"schema".contact_tombstones WHERE recorded_at > %(since)s)
    OR EXISTS (SELECT FROM :"schema".device_tombstones WHERE recorded_at > %(since)s);

-- name: contacts
SELECT contact_hash, max(deleted_version) FROM :"schema".contact_tombstones
WHERE contact_hash = ANY (%(hashes)s::bytea[]) GROUP BY contact_hash;

-- name: devices
SELECT t.device_hash, greatest(t.deleted_version, t.contact_deleted_version), t.recorded_at,
    d.device_hash IS NOT NULL, d.push_token_hash
FROM :"schema".device_tombstones AS t
LEFT JOIN :"schema".devices AS d ON d.device_hash = t.device_hash
WHERE t.device_hash = ANY (%(hashes)s::bytea[]);

-- name: tokens
SELECT c.token_hash, greatest(t.deleted_version, t.contact_deleted_version), t.recorded_at, d.device_hash IS NOT NULL
FROM :"schema".push_token_claims AS c
JOIN :"schema".device_tombstones AS t ON t.device_hash = c.device_hash
LEFT JOIN :"schema".devices AS d ON d.device_hash = t.device_hash
WHERE c.token_hash = ANY (%(hashes)s::bytea[]);
