-- Stages, and what the last import and comparison of a customer came to.

-- name: status
-- Of active customers, or of one.
SELECT t.customer_id, m.stage, m.changed_at, m.changed_by, i.scanned_at, i.items, i.imported, i.passed_over,
    i.rejected, i.rejections, i.imported_at, i.checked_at, i.different, i.different_fields,
    coalesce(f.contacts, 0), coalesce(f.from_fallback, 0)
FROM clientmgr.tenants AS t
LEFT JOIN clientmgr.legacy_migrations AS m USING (customer_id)
LEFT JOIN clientmgr.legacy_imports AS i USING (customer_id)
LEFT JOIN LATERAL (
    SELECT sum(a.contacts)::bigint AS contacts, sum(a.from_fallback)::bigint AS from_fallback
    FROM clientmgr.legacy_fallback_answers AS a
    WHERE a.customer_id = t.customer_id AND a.hour > now() - interval '24 hours'
) AS f ON true
WHERE t.status = 'active' AND (%(customers)s::bigint [] IS NULL OR t.customer_id = ANY(%(customers)s::bigint []))
ORDER BY t.customer_id;

-- name: lock
-- Two who move the same customer come one after the other.
SELECT pg_advisory_xact_lock(7102067, hashint8(%(customer_id)s)); -- "leg"

-- name: set_stage
INSERT INTO clientmgr.legacy_migrations (customer_id, stage, changed_by)
VALUES (%(customer_id)s, %(stage)s, %(actor)s)
ON CONFLICT (customer_id) DO UPDATE SET stage = excluded.stage, changed_by = excluded.changed_by, changed_at = now();

-- name: to_import
-- Customers that were started, or began anew, and have not been imported since.
SELECT m.customer_id, m.changed_at
FROM clientmgr.legacy_migrations AS m
JOIN clientmgr.tenants AS t ON t.customer_id = m.customer_id AND t.status = 'active'
LEFT JOIN clientmgr.legacy_imports AS i ON i.customer_id = m.customer_id
WHERE m.stage = 'importing' AND (i.scanned_at IS NULL OR i.scanned_at < m.changed_at)
ORDER BY m.customer_id;

-- name: being_imported
SELECT m.customer_id
FROM clientmgr.legacy_migrations AS m
JOIN clientmgr.tenants AS t ON t.customer_id = m.customer_id AND t.status = 'active'
WHERE m.stage = ANY(%(stages)s::text []);

-- name: count_answers
INSERT INTO clientmgr.legacy_fallback_answers AS a (customer_id, hour, contacts, from_fallback)
SELECT n.customer_id, date_trunc('hour', now()), n.contacts, n.from_fallback
FROM unnest(%(customers)s::bigint [], %(contacts)s::bigint [], %(from_fallback)s::bigint [])
    AS n (customer_id, contacts, from_fallback)
ORDER BY n.customer_id
ON CONFLICT (customer_id, hour) DO UPDATE SET
    contacts = a.contacts + excluded.contacts, from_fallback = a.from_fallback + excluded.from_fallback;

-- name: forget_answers
DELETE FROM clientmgr.legacy_fallback_answers
WHERE customer_id = ANY(%(customers)s::bigint []) AND hour < now() - interval '7 days';
