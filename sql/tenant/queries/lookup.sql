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
-- Its own deletion, and that of the contact it belonged to; 0: there was none.
SELECT t.deleted_version, t.contact_deleted_version, t.recorded_at FROM :"schema".device_tombstones AS t
WHERE t.device_hash = %(device)s::bytea;

-- name: links_of_device
SELECT l.contact_id, l.linked_version,
    (SELECT max(t.deleted_version) FROM :"schema".contact_tombstones AS t WHERE t.contact_hash = l.contact_hash)
FROM :"schema".contact_links AS l
WHERE l.device_hash = %(device)s::bytea AND l.contact_hash <> ''
ORDER BY l.linked_version, l.contact_hash;

-- name: unlinks_of_device
SELECT l.linked_version FROM :"schema".contact_links AS l
WHERE l.device_hash = %(device)s::bytea AND l.contact_hash = '' ORDER BY l.linked_version;

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

-- name: last_write
-- No index has it: the table is read, so callers ask only where it is small.
SELECT max(updated_at) FROM :"schema".devices;

-- name: export
SELECT :export_columns FROM :"schema".devices AS d;

-- name: search
-- A text in one tenant, as whatever it may be: a contact, a client id, a token; and by hash what is deleted. Each part is
-- an index look-up. `number`: devices of the contact, or the version of a deletion.
SELECT 'contact' AS kind, NULL::text AS application_code, NULL::text AS client_id, %(contact_id)s::bigint AS contact_id,
    count(*) AS number
FROM (SELECT FROM :"schema".devices AS d WHERE d.contact_id = %(contact_id)s::bigint LIMIT 1000) AS its
HAVING count(*) > 0
UNION ALL
SELECT 'deleted contact', NULL, NULL, %(contact_id)s::bigint, max(t.deleted_version)
FROM :"schema".contact_tombstones AS t WHERE t.contact_hash = %(contact)s::bytea
HAVING count(*) > 0
UNION ALL
SELECT 'device', d.application_code, d.client_id, d.contact_id, NULL
FROM unnest(%(applications)s::text []) AS a (application_code)
JOIN :"schema".devices AS d USING (application_code)
WHERE d.client_id = %(text)s::text
UNION ALL
SELECT 'deleted device', a.application_code, %(text)s::text, NULL,
    greatest(t.deleted_version, t.contact_deleted_version)
FROM unnest(%(applications)s::text [], %(devices)s::bytea []) AS a (application_code, device_hash)
JOIN :"schema".device_tombstones AS t USING (device_hash)
WHERE NOT EXISTS (SELECT FROM :"schema".devices AS d WHERE d.device_hash = t.device_hash)
UNION ALL
SELECT 'token', d.application_code, d.client_id, d.contact_id, NULL
FROM unnest(%(tokens)s::bytea []) AS wanted (token_hash)
JOIN :"schema".push_token_claims AS c USING (token_hash)
JOIN :"schema".devices AS d USING (device_hash)
WHERE d.push_token_hash = c.token_hash AND d.push_token_status IN ('valid', 'invalid')
LIMIT %(limit)s;
