-- What a tenant's tables know of one contact: its devices, and the keyed hashes that are left of it. :"schema" is the
-- tenant's schema.

-- name: deletions
SELECT deleted_version, recorded_at FROM :"schema".contact_tombstones
WHERE contact_hash = %(contact_hash)s ORDER BY deleted_version;

-- name: devices
SELECT device_hash, push_token_hash, push_token, web_push ->> 'endpoint' FROM :"schema".devices
WHERE contact_id = %(contact_id)s::bigint;

-- name: deleted_devices
-- Devices that went with a contact that they were linked to, be it by a merge, and whether they have come back, with
-- which token.
WITH RECURSIVE holders (contact_hash) AS (
    SELECT %(contact_hash)s::bytea
    UNION
    SELECT m.from_contact_hash
    FROM holders AS h JOIN :"schema".contact_merges AS m ON m.into_contact_hash = h.contact_hash
)

SELECT t.device_hash, t.contact_deleted_version, t.recorded_at, d.device_hash IS NOT NULL, d.push_token_hash
FROM :"schema".device_tombstones AS t
LEFT JOIN :"schema".devices AS d USING (device_hash)
WHERE t.contact_deleted_version > 0 AND t.device_hash IN (
    SELECT l.device_hash
    FROM holders AS h JOIN :"schema".contact_links AS l USING (contact_hash) WHERE l.contact_hash <> ''
);

-- name: tokens
SELECT token_hash, device_hash FROM :"schema".push_token_claims WHERE device_hash = ANY(%(devices)s::bytea []);

-- name: survivors
-- Rows of devices that should have gone: they are older than their own deletion.
SELECT count(*) FROM :"schema".devices AS d
JOIN unnest(%(devices)s::bytea [], %(recorded)s::timestamptz []) AS gone (device_hash, recorded_at) USING (device_hash)
WHERE d.created_at < gone.recorded_at;

-- name: links
-- Also those of contacts that were merged into it.
WITH RECURSIVE holders (contact_hash) AS (
    SELECT %(contact_hash)s::bytea
    UNION
    SELECT m.from_contact_hash
    FROM holders AS h JOIN :"schema".contact_merges AS m ON m.into_contact_hash = h.contact_hash
)

SELECT l.device_hash, l.linked_version, l.contact_hash, l.contact_id
FROM holders AS h JOIN :"schema".contact_links AS l USING (contact_hash) WHERE l.contact_hash <> ''
ORDER BY l.linked_version, l.device_hash;

-- name: merges
SELECT from_contact_hash, merged_version, into_contact_hash, into_contact_id, recorded_at FROM :"schema".contact_merges
WHERE from_contact_hash = %(contact_hash)s OR into_contact_hash = %(contact_hash)s
ORDER BY merged_version;

-- name: full_devices
SELECT d.* FROM :"schema".devices AS d
WHERE d.contact_id = %(contact_id)s::bigint ORDER BY d.application_code, d.client_id;

-- name: hashes_are_there
-- Null: there is no such schema. False: its tables are those of an older release.
SELECT bool_or(a.attname = 'contact_hash')
FROM pg_attribute AS a WHERE a.attrelid = to_regclass(':"schema".contact_tombstones') AND a.attnum > 0;
