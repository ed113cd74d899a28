-- Importing a customer's items page by page, and comparing them afterwards.

-- name: progress
SELECT scanned_at, items, through_device_key, through_contact_id, imported_at
FROM clientmgr.legacy_imports WHERE customer_id = %(customer_id)s;

-- name: page
SELECT device_key, contact_id, item FROM clientmgr.legacy_devices
WHERE customer_id = %(customer_id)s
    AND (device_key, contact_id) > (%(after_device_key)s, %(after_contact_id)s)
ORDER BY device_key, contact_id LIMIT %(limit)s;

-- name: advance
-- In the transaction that imports the page. No row comes back where another scan has begun meanwhile.
UPDATE clientmgr.legacy_imports SET
    through_device_key = %(device_key)s, through_contact_id = %(contact_id)s,
    imported = imported + %(imported)s, passed_over = passed_over + %(passed_over)s, rejected = rejected + %(rejected)s,
    rejections = (
        SELECT coalesce(jsonb_object_agg(r.reason, r.times), '{}') FROM (
            SELECT e.key AS reason, sum(e.value::bigint) AS times
            FROM (
                SELECT key, value FROM jsonb_each_text(rejections)
                UNION ALL
                SELECT key, value FROM jsonb_each_text(%(rejections)s)
            ) AS e
            GROUP BY e.key ORDER BY 2 DESC, 1 LIMIT 20
        ) AS r
    )
WHERE customer_id = %(customer_id)s AND scanned_at = %(scanned_at)s
RETURNING imported;

-- name: finish
-- Only if every item of the scan was there. No row comes back where some are gone.
UPDATE clientmgr.legacy_imports SET imported_at = now()
WHERE customer_id = %(customer_id)s AND scanned_at = %(scanned_at)s AND imported + passed_over + rejected = items
RETURNING items;

-- name: unfinished
-- Scans whose items are still to be imported or compared, and are all there.
SELECT i.customer_id FROM clientmgr.legacy_imports AS i
WHERE i.customer_id = ANY(%(customers)s::bigint []) AND i.checked_at IS NULL
    AND i.scanned_at > now() - %(younger_than)s::interval
    AND i.items = (
        SELECT count(*) FROM clientmgr.legacy_devices AS d
        WHERE d.customer_id = i.customer_id AND d.scanned_at = i.scanned_at
    );

-- name: record_check
UPDATE clientmgr.legacy_imports SET
    checked_at = now(), different = %(different)s, different_fields = %(different_fields)s
WHERE customer_id = %(customer_id)s AND scanned_at = %(scanned_at)s;

-- name: forget_items
DELETE FROM clientmgr.legacy_devices WHERE customer_id = %(customer_id)s AND scanned_at = %(scanned_at)s;
