-- name: set
-- No row comes back where it was called so already.
INSERT INTO clientmgr.tenant_names AS n (customer_id, name, named_by)
VALUES (%(customer_id)s, %(name)s, %(named_by)s)
ON CONFLICT (customer_id) DO UPDATE SET name = excluded.name, named_by = excluded.named_by, named_at = now()
WHERE n.name <> excluded.name
RETURNING true;

-- name: remove
DELETE FROM clientmgr.tenant_names WHERE customer_id = %(customer_id)s RETURNING true;

-- name: names
SELECT customer_id, name FROM clientmgr.tenant_names
WHERE %(customer_ids)s::bigint[] IS NULL OR customer_id = ANY (%(customer_ids)s::bigint[]);

-- name: find
-- Tenants by their id, or by a part of their name, whatever its case. Those that begin with it come first.
SELECT t.customer_id, n.name, t.status
FROM clientmgr.tenants AS t LEFT JOIN clientmgr.tenant_names AS n USING (customer_id)
WHERE t.customer_id::text = %(text)s OR starts_with(t.customer_id::text, %(text)s)
    OR strpos(lower(n.name), lower(%(text)s)) > 0
ORDER BY t.customer_id::text <> %(text)s, NOT starts_with(lower(coalesce(n.name, '')), lower(%(text)s)), t.customer_id
LIMIT %(limit)s;
