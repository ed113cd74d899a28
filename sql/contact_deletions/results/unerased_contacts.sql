-- What the writer of Spark's results does with `unerased_contacts`.

-- name: staged
SELECT count(*) FROM clientmgr.unerased_contacts_staged WHERE attempt_id = ANY(%(attempts)s::text []);

-- name: clear
DELETE FROM clientmgr.unerased_contacts WHERE customer_id = ANY(%(customers)s::bigint []);

-- name: move
INSERT INTO clientmgr.unerased_contacts (customer_id, contact_id, deleted_at, found_at)
SELECT s.customer_id, s.contact_id, s.deleted_at, s.found_at
FROM clientmgr.unerased_contacts_staged AS s
-- One that was deleted meanwhile must not come back.
JOIN clientmgr.tenants AS t ON t.customer_id = s.customer_id AND t.status = 'active'
WHERE s.attempt_id = ANY(%(attempts)s::text []) AND s.customer_id = ANY(%(customers)s::bigint [])
-- Two searches at once find the same.
ON CONFLICT DO NOTHING;

-- name: forget
DELETE FROM clientmgr.unerased_contacts_staged
WHERE attempt_id = ANY(%(attempts)s::text []) OR staged_at < now() - interval '12 hours';
