-- Sweeps: one at a time, and the record of each.

-- name: lock
-- One sweep at a time. The session holds it, so that a killed one lets go.
SELECT pg_try_advisory_lock(7106410, 1);

-- name: begin
INSERT INTO clientmgr.erasure_sweeps DEFAULT VALUES RETURNING id, started_at;

-- name: last_finished
SELECT max(started_at) FROM clientmgr.erasure_sweeps WHERE finished_at IS NOT NULL;

-- name: finish
UPDATE clientmgr.erasure_sweeps SET finished_at = clock_timestamp(), counts = %(counts)s::jsonb WHERE id = %(id)s
RETURNING finished_at;

-- name: fail
UPDATE clientmgr.erasure_sweeps SET error = %(error)s, counts = %(counts)s::jsonb WHERE id = %(id)s;

-- name: forget
DELETE FROM clientmgr.erasure_sweeps WHERE started_at < now() - interval '400 days';

-- name: lag
-- Since the last finished sweep began, or, before the first, since there is a customer.
SELECT extract(epoch FROM clock_timestamp() - coalesce(
    (SELECT max(started_at) FROM clientmgr.erasure_sweeps WHERE finished_at IS NOT NULL),
    (SELECT min(registered_at) FROM clientmgr.tenants)
))::float8;

-- name: key_in_use
-- The newest row of the audit log names the key that was used last.
SELECT key_id FROM clientmgr.audit_log ORDER BY recorded_at DESC LIMIT 1;

-- name: latest
SELECT started_at, finished_at, counts, error FROM clientmgr.erasure_sweeps ORDER BY id DESC LIMIT %(limit)s;

-- name: analyze_tenant
SELECT clientmgr.analyze_tenant(%(customer_id)s);

-- name: analyze_messages
SELECT clientmgr.analyze_messages();
