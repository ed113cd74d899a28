-- name: record
-- What a search found, a row for each customer, 0 included. The hourly fetch has yet to come to what is newer than the
-- customer's watermark, unless that is older than the overlap: then nobody is on the way to it. A step that is tried
-- again may find less, because the worker was at work meanwhile: what was found first stays.
INSERT INTO clientmgr.contact_deletion_reconciliations AS r (customer_id, run_id, searched_at, found, missed)
SELECT
    t.customer_id,
    %(run_id)s,
    %(searched_at)s,
    count(DISTINCT u.contact_id),
    count(DISTINCT u.contact_id) FILTER (
        WHERE w.customer_id IS NULL
            OR u.deleted_at <= greatest(
                w.deleted_at, %(searched_at)s::timestamptz - make_interval(secs => %(overlap_seconds)s)
            )
    )
FROM clientmgr.tenants AS t
LEFT JOIN clientmgr.unerased_contacts AS u USING (customer_id)
LEFT JOIN clientmgr.contact_deletion_watermarks AS w USING (customer_id)
WHERE t.customer_id = ANY(%(customers)s::bigint []) AND t.status = 'active'
GROUP BY t.customer_id
ON CONFLICT (customer_id, run_id) DO UPDATE SET
    searched_at = excluded.searched_at,
    found = greatest(r.found, excluded.found),
    missed = greatest(r.missed, excluded.missed);

-- name: forget_old
DELETE FROM clientmgr.contact_deletion_reconciliations
WHERE customer_id = ANY(%(customers)s::bigint []) AND searched_at < now() - interval '90 days';

-- name: customers_with_unerased
SELECT DISTINCT customer_id FROM clientmgr.unerased_contacts
WHERE customer_id = ANY(%(customers)s::bigint [])
ORDER BY customer_id;

-- name: take
-- Locked first: two who publish the same customer's contacts wait for each other, and the second finds nothing left.
WITH taken AS MATERIALIZED (
    SELECT customer_id, contact_id, deleted_at FROM clientmgr.unerased_contacts
    WHERE customer_id = %(customer_id)s
    ORDER BY contact_id, deleted_at
    LIMIT %(limit)s
    FOR UPDATE
)

DELETE FROM clientmgr.unerased_contacts AS u
USING taken
WHERE (u.customer_id, u.contact_id, u.deleted_at) = (taken.customer_id, taken.contact_id, taken.deleted_at)
RETURNING u.contact_id, u.deleted_at;

-- name: count_published
UPDATE clientmgr.contact_deletion_reconciliations SET published = published + %(published)s
WHERE customer_id = %(customer_id)s AND run_id = %(run_id)s;

-- name: results
SELECT customer_id, found, missed, published FROM clientmgr.contact_deletion_reconciliations
WHERE run_id = %(run_id)s AND customer_id = ANY(%(customers)s::bigint [])
ORDER BY customer_id;

-- name: missed_two_nights
SELECT customer_id, missed, since FROM clientmgr.contact_deletions_missed ORDER BY customer_id;
