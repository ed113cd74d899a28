-- What the writer of Spark's results does with `legacy_devices`.

-- name: staged
SELECT count(*) FROM clientmgr.legacy_devices_staged WHERE attempt_id = ANY(%(attempts)s::text []);

-- name: clear
DELETE FROM clientmgr.legacy_devices WHERE customer_id = ANY(%(customers)s::bigint []);

-- name: move
INSERT INTO clientmgr.legacy_devices (customer_id, device_key, contact_id, item, scanned_at)
SELECT s.customer_id, s.device_key, s.contact_id, s.item, s.scanned_at
FROM clientmgr.legacy_devices_staged AS s
-- One that was deleted meanwhile must not come back.
JOIN clientmgr.tenants AS t ON t.customer_id = s.customer_id AND t.status = 'active'
WHERE s.attempt_id = ANY(%(attempts)s::text []) AND s.customer_id = ANY(%(customers)s::bigint [])
-- An item that is written while it is scanned may be met in two pages.
ON CONFLICT DO NOTHING;

-- name: record
-- A new scan begins its import anew.
INSERT INTO clientmgr.legacy_imports (customer_id, run_id, scanned_at, items)
SELECT t.customer_id, %(run_id)s, %(scanned_at)s, (
    SELECT count(*) FROM clientmgr.legacy_devices AS d WHERE d.customer_id = t.customer_id
)
FROM clientmgr.tenants AS t
WHERE t.customer_id = ANY(%(customers)s::bigint []) AND t.status = 'active'
ORDER BY t.customer_id
ON CONFLICT (customer_id) DO UPDATE SET
    run_id = excluded.run_id, scanned_at = excluded.scanned_at, items = excluded.items,
    through_device_key = NULL, through_contact_id = NULL, imported = 0, passed_over = 0, rejected = 0,
    rejections = '{}', imported_at = NULL, checked_at = NULL, different = NULL, different_fields = NULL;

-- name: forget
DELETE FROM clientmgr.legacy_devices_staged
WHERE attempt_id = ANY(%(attempts)s::text []) OR staged_at < now() - interval '12 hours';
