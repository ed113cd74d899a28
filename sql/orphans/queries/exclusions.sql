-- name: list
SELECT customer_id, reason, updated_by, updated_at FROM clientmgr.orphan_exclusions ORDER BY customer_id;

-- name: is_excluded
SELECT EXISTS (SELECT FROM clientmgr.orphan_exclusions WHERE customer_id = %(customer_id)s);

-- name: exclude
-- No row comes back where nothing changed.
INSERT INTO clientmgr.orphan_exclusions AS e (customer_id, reason, updated_by)
VALUES (%(customer_id)s, %(reason)s, %(updated_by)s)
ON CONFLICT (customer_id) DO UPDATE
    SET reason = excluded.reason, updated_by = excluded.updated_by, updated_at = now()
    WHERE e.reason IS DISTINCT FROM excluded.reason
RETURNING customer_id;

-- name: include
DELETE FROM clientmgr.orphan_exclusions WHERE customer_id = %(customer_id)s RETURNING customer_id;
