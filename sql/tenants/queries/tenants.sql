-- name: get
SELECT customer_id, status, schema_version, schema_digest, activated_at, deleted_at
FROM clientmgr.tenants WHERE customer_id = %(customer_id)s;

-- name: find
SELECT customer_id, status, schema_version, schema_digest, activated_at, deleted_at
FROM clientmgr.tenants WHERE customer_id = ANY(%(customer_ids)s::bigint [])
ORDER BY customer_id;

-- name: list
SELECT customer_id, status, schema_version, schema_digest, activated_at, deleted_at
FROM clientmgr.tenants
WHERE status = %(status)s::text OR %(status)s::text IS NULL
ORDER BY customer_id;

-- name: status_counts
SELECT status, count(*) FROM clientmgr.tenants GROUP BY status ORDER BY status;

-- name: not_at_head
-- Two ranges instead of <>: each is a look into tenants_by_digest that finds nothing when nothing is pending.
SELECT customer_id FROM clientmgr.tenants
WHERE status IN ('activating', 'active') AND schema_digest < %(head)s::text
UNION ALL
SELECT customer_id FROM clientmgr.tenants
WHERE status IN ('activating', 'active') AND schema_digest > %(head)s::text;

-- name: register
-- A deleted customer may come back; one that is there already stays as it is. In key order, so that two
-- registrations of overlapping customers wait for each other instead of deadlocking.
INSERT INTO clientmgr.tenants AS t (customer_id, status)
SELECT id, 'activating' FROM unnest(%(customer_ids)s::bigint []) AS wanted (id) ORDER BY id
ON CONFLICT (customer_id) DO UPDATE
    SET status = 'activating', registered_at = now(), updated_at = now(), activated_at = NULL, deleted_at = NULL
    WHERE t.status = 'deleted';

-- name: lock
SELECT customer_id, status, schema_version, schema_digest, activated_at, deleted_at
FROM clientmgr.tenants WHERE customer_id = ANY(%(customer_ids)s::bigint [])
ORDER BY customer_id FOR UPDATE; -- in key order: two callers with tenants in common wait instead of deadlocking

-- name: applied_files
-- A file that failed at every tenant so far is not applied: it may still be mended.
SELECT f.version, f.name, f.checksum FROM clientmgr.tenant_migration_files AS f
WHERE EXISTS (SELECT FROM clientmgr.tenant_migrations AS m WHERE m.version = f.version)
ORDER BY f.version;

-- name: replace_unapplied_files
-- Whoever has applied another text meanwhile holds it by its foreign key: then this fails.
UPDATE clientmgr.tenant_migration_files AS f SET name = w.name, checksum = w.checksum
FROM unnest(%(versions)s::integer [], %(names)s::text [], %(checksums)s::text []) AS w (version, name, checksum)
WHERE f.version = w.version AND (f.name, f.checksum) <> (w.name, w.checksum);

-- name: record_files
-- Whichever of the two unique keys somebody else's insert, at the same moment, is met at first.
INSERT INTO clientmgr.tenant_migration_files (version, name, checksum)
SELECT * FROM unnest(%(versions)s::integer [], %(names)s::text [], %(checksums)s::text [])
ON CONFLICT DO NOTHING;

-- name: record_migrations
INSERT INTO clientmgr.tenant_migrations (customer_id, version, checksum)
SELECT * FROM unnest(%(customer_ids)s::bigint [], %(versions)s::integer [], %(checksums)s::text []);

-- name: set_at_head
UPDATE clientmgr.tenants
SET status = 'active', schema_version = %(version)s, schema_digest = %(digest)s,
    activated_at = coalesce(activated_at, now()), updated_at = now()
WHERE customer_id = ANY(%(customer_ids)s::bigint []);

-- name: set_activating
UPDATE clientmgr.tenants SET status = 'activating', schema_version = 0, schema_digest = '', updated_at = now()
WHERE customer_id = %(customer_id)s AND status = 'active';

-- name: set_deleting
UPDATE clientmgr.tenants SET status = 'deleting', updated_at = now() WHERE customer_id = %(customer_id)s;

-- name: set_deleted
UPDATE clientmgr.tenants
SET status = 'deleted', schema_version = 0, schema_digest = '', deleted_at = coalesce(deleted_at, now()),
    updated_at = now()
WHERE customer_id = %(customer_id)s AND status = 'deleting';

-- name: forget_migrations
DELETE FROM clientmgr.tenant_migrations WHERE customer_id = %(customer_id)s;

-- name: schema_exists
SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %(schema)s);

-- name: devices_exist
SELECT to_regclass(%(devices)s) IS NOT NULL;

-- name: statuses
SELECT customer_id, status FROM clientmgr.tenants WHERE customer_id = ANY(%(customer_ids)s::bigint []);

-- name: active_without_schema
SELECT t.customer_id FROM clientmgr.tenants AS t
WHERE t.status = 'active' AND t.customer_id = ANY(%(customers)s::bigint [])
    AND NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = clientmgr.tenant_schema(t.customer_id))
ORDER BY t.customer_id;
