-- name: all
SELECT name, customer_id, enabled FROM clientmgr.flippers;

-- name: list
SELECT name, customer_id, enabled, updated_by, updated_at FROM clientmgr.flippers
WHERE (%(customer_id)s::bigint IS NULL OR customer_id = %(customer_id)s::bigint OR customer_id IS NULL)
    AND CASE %(scope)s::text WHEN 'all' THEN customer_id IS NULL WHEN 'own' THEN customer_id IS NOT NULL ELSE true END
ORDER BY name, customer_id NULLS FIRST;

-- name: set
-- No row comes back where nothing changed.
INSERT INTO clientmgr.flippers AS f (name, customer_id, enabled, updated_by)
VALUES (%(name)s, %(customer_id)s::bigint, %(enabled)s, %(updated_by)s)
ON CONFLICT (name, customer_id) DO UPDATE
    SET enabled = excluded.enabled, updated_by = excluded.updated_by, updated_at = now()
    WHERE f.enabled IS DISTINCT FROM excluded.enabled
RETURNING enabled;

-- name: unset
DELETE FROM clientmgr.flippers
WHERE name = %(name)s AND customer_id IS NOT DISTINCT FROM %(customer_id)s::bigint
RETURNING enabled;
