-- What support people ask of a tenant's tables. :"schema" is the tenant's schema.
-- :export_columns come from the registry of device fields: clientmgr/devices/queries.py.
-- The key begins with the application: one index look-up for each application finds a client in all of them.

-- name: by_contact
SELECT d.* FROM :"schema".devices AS d
WHERE d.contact_id = %(contact_id)s::bigint
ORDER BY d.application_code, d.client_id
LIMIT %(limit)s::bigint;

-- name: by_client
WITH RECURSIVE applications (application_code) AS (
    (SELECT d.application_code FROM :"schema".devices AS d ORDER BY d.application_code LIMIT 1)
    UNION ALL
    SELECT n.application_code
    FROM applications AS a, LATERAL (
        SELECT d.application_code FROM :"schema".devices AS d
        WHERE d.application_code > a.application_code ORDER BY d.application_code LIMIT 1
    ) AS n
)
SELECT d.* FROM applications AS a JOIN :"schema".devices AS d USING (application_code)
WHERE d.client_id = %(client_id)s::text
ORDER BY d.application_code
LIMIT %(limit)s::bigint;

-- name: by_hardware
-- No index serves this: it reads the table, which takes a second or so for some millions.
SELECT d.* FROM :"schema".devices AS d
WHERE d.hardware_id = %(hardware_id)s::text
ORDER BY d.application_code, d.client_id
LIMIT %(limit)s::bigint;

-- name: applications
WITH RECURSIVE applications (application_code) AS (
    (SELECT d.application_code FROM :"schema".devices AS d ORDER BY d.application_code LIMIT 1)
    UNION ALL
    SELECT n.application_code
    FROM applications AS a, LATERAL (
        SELECT d.application_code FROM :"schema".devices AS d
        WHERE d.application_code > a.application_code ORDER BY d.application_code LIMIT 1
    ) AS n
)
SELECT application_code FROM applications;

-- name: by_token
-- Who claimed it last and still holds it. A token has a hash in each application.
SELECT d.*
FROM unnest(%(tokens)s::bytea []) AS wanted (token_hash)
JOIN :"schema".push_token_claims AS c USING (token_hash)
JOIN :"schema".devices AS d USING (device_hash)
WHERE d.push_token_hash = c.token_hash AND d.push_token_status IN ('valid', 'invalid')
ORDER BY d.application_code
LIMIT %(limit)s::bigint;

-- name: claim_of_token
-- No client id: who claimed it is deleted.
SELECT c.device_hash, d.client_id, c.claimed_version
FROM :"schema".push_token_claims AS c LEFT JOIN :"schema".devices AS d USING (device_hash)
WHERE c.token_hash = %(token)s::bytea;

-- name: tombstone_of_device
SELECT greatest(t.deleted_version, t.contact_deleted_version) FROM :"schema".device_tombstones AS t
WHERE t.device_hash = %(device)s::bytea;

-- name: links_of_device
SELECT l.contact_id, l.linked_version,
    (SELECT max(t.deleted_version) FROM :"schema".contact_tombstones AS t WHERE t.contact_hash = l.contact_hash)
FROM :"schema".contact_links AS l
WHERE l.device_hash = %(device)s::bytea AND l.contact_hash <> ''
ORDER BY l.linked_version, l.contact_hash;

-- name: contact_tombstone
SELECT max(deleted_version) FROM :"schema".contact_tombstones WHERE contact_hash = %(contact)s::bytea;

-- name: contact_with_most_devices
SELECT contact_id FROM :"schema".devices
WHERE contact_id IS NOT NULL
GROUP BY contact_id
ORDER BY count(*) DESC, contact_id
LIMIT 1;

-- name: some_contacts
SELECT DISTINCT contact_id FROM :"schema".devices WHERE contact_id IS NOT NULL ORDER BY contact_id LIMIT %(limit)s;

-- name: estimated_count
SELECT greatest(c.reltuples, 0)::bigint FROM pg_class AS c WHERE c.oid = ':"schema".devices'::regclass;

-- name: export
SELECT :export_columns FROM :"schema".devices AS d;
