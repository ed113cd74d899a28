-- What support people ask of a tenant's tables. :"schema" is the tenant's schema.
-- :export_columns come from the registry of device fields: clientmgr/devices/queries.py.
-- Both keys begin with the application: one index look-up for each application finds a client or a token in all of them.

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

-- name: by_token
-- Who claimed it last and still holds it.
WITH RECURSIVE applications (application_code) AS (
    (SELECT c.application_code FROM :"schema".push_token_claims AS c ORDER BY c.application_code LIMIT 1)
    UNION ALL
    SELECT n.application_code
    FROM applications AS a, LATERAL (
        SELECT c.application_code FROM :"schema".push_token_claims AS c
        WHERE c.application_code > a.application_code ORDER BY c.application_code LIMIT 1
    ) AS n
)
SELECT d.*
FROM applications AS a
JOIN :"schema".push_token_claims AS c ON c.application_code = a.application_code AND c.token_digest = %(digest)s::bytea
JOIN :"schema".devices AS d ON (d.application_code, d.client_id) = (c.application_code, c.client_id)
WHERE d.push_token_digest = c.token_digest AND d.push_token_status IN ('valid', 'invalid')
ORDER BY d.application_code
LIMIT %(limit)s::bigint;

-- name: claims_of_token
SELECT c.application_code, c.client_id, c.claimed_version
FROM :"schema".push_token_claims AS c
WHERE c.application_code = %(application_code)s::text AND c.token_digest = %(digest)s::bytea;

-- name: tombstones_of_client
SELECT t.application_code, t.deleted_version FROM :"schema".device_tombstones AS t
WHERE t.client_id = %(client_id)s::text
ORDER BY t.application_code;

-- name: links_of_client
-- Kept by contact: this reads the table.
SELECT l.application_code, l.contact_id, l.linked_version, t.deleted_version
FROM :"schema".contact_links AS l
LEFT JOIN :"schema".contact_tombstones AS t USING (contact_id)
WHERE l.client_id = %(client_id)s::text
ORDER BY l.application_code, l.linked_version, l.contact_id;

-- name: contact_tombstone
SELECT deleted_version FROM :"schema".contact_tombstones WHERE contact_id = %(contact_id)s::bigint;

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
