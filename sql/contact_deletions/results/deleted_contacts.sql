-- What the writer of Spark's results does with `deleted_contacts`. Nothing is cleared: what was found stays found.

-- name: staged
SELECT count(*) FROM clientmgr.deleted_contacts_staged WHERE attempt_id = ANY(%(attempts)s::text []);

-- name: move
INSERT INTO clientmgr.deleted_contacts (customer_id, contact_id, contact_hash, deleted_at, found_at)
SELECT s.customer_id, s.contact_id, s.contact_hash, s.deleted_at, s.found_at
FROM clientmgr.deleted_contacts_staged AS s
-- One that was deleted meanwhile must not come back.
JOIN clientmgr.tenants AS t ON t.customer_id = s.customer_id AND t.status = 'active'
WHERE s.attempt_id = ANY(%(attempts)s::text []) AND s.customer_id = ANY(%(customers)s::bigint [])
-- Read before, and known by its hash: rows that came late are looked for again and again.
ON CONFLICT DO NOTHING;

-- name: forget
DELETE FROM clientmgr.deleted_contacts_staged
WHERE attempt_id = ANY(%(attempts)s::text []) OR staged_at < now() - interval '12 hours';
