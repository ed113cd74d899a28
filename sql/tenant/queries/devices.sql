-- What the workers ask of a tenant's tables. :"schema" is the tenant's schema; keys come as arrays, rows as one JSON.
-- :info_columns, :info_assignments and :state_columns come from the registry of device fields: clientmgr/devices/queries.py.

-- name: lock_writes
-- One writer of a tenant at a time: a device that is not there yet has no row to lock, and neither has a tombstone.
-- Whoever locks several names them in order, or two of them wait for each other.
SELECT pg_advisory_xact_lock(-customer_id) FROM unnest(%(customer_ids)s::bigint []) AS tenants (customer_id);

-- name: devices
-- What is known of these devices: the row, the tombstone, or both. Not locked: the tenant's write lock is held, and a
-- lock on each row would be written to the row. clientmgr/devices/rows.py names the columns.
SELECT wanted.application_code, wanted.client_id, t.deleted_version,
    :state_columns
FROM unnest(%(application_codes)s::text [], %(client_ids)s::text []) AS wanted (application_code, client_id)
LEFT JOIN :"schema".devices AS d USING (application_code, client_id)
LEFT JOIN :"schema".device_tombstones AS t USING (application_code, client_id)
WHERE d.client_id IS NOT NULL OR t.client_id IS NOT NULL;

-- name: claims
-- Who has claimed these tokens, and what is known of that device: columns as above, then those of the claim.
SELECT c.application_code, c.client_id, NULL,
    :state_columns,
    c.token_digest, c.claimed_version
FROM unnest(%(application_codes)s::text [], %(digests)s::bytea []) AS wanted (application_code, token_digest)
JOIN :"schema".push_token_claims AS c USING (application_code, token_digest)
LEFT JOIN :"schema".devices AS d ON (d.application_code, d.client_id) = (c.application_code, c.client_id);

-- name: contact_tombstones
SELECT contact_id, deleted_version FROM :"schema".contact_tombstones WHERE contact_id = ANY(%(contact_ids)s::bigint []);

-- name: upsert_devices
INSERT INTO :"schema".devices AS d (
    application_code, client_id, contact_id, contact_version, push_token, push_token_kind, push_token_digest,
    push_token_status, push_token_version, push_token_status_version, web_push, last_seen_version, info_versions,
    :info_columns, provider, last_seen_at, orphaned_since
)
SELECT
    n.application_code, n.client_id, n.contact_id, n.contact_version, n.push_token, n.push_token_kind,
    n.push_token_digest, n.push_token_status, n.push_token_version, n.push_token_status_version, n.web_push,
    n.last_seen_version, n.info_versions, :info_columns, n.provider,
    to_timestamp(n.last_seen_version / 1000.0),
    n.orphaned_since
FROM json_populate_recordset(CAST(NULL AS :"schema".devices), %(rows)s) AS n
ORDER BY n.application_code, n.client_id
ON CONFLICT (application_code, client_id) DO UPDATE SET
    contact_id = excluded.contact_id,
    contact_version = excluded.contact_version,
    push_token = excluded.push_token,
    push_token_kind = excluded.push_token_kind,
    push_token_digest = excluded.push_token_digest,
    push_token_status = excluded.push_token_status,
    push_token_version = excluded.push_token_version,
    push_token_status_version = excluded.push_token_status_version,
    web_push = excluded.web_push,
    last_seen_version = excluded.last_seen_version,
    info_versions = excluded.info_versions,
    :info_assignments,
    provider = excluded.provider,
    last_seen_at = excluded.last_seen_at,
    orphaned_since = excluded.orphaned_since,
    updated_at = now();

-- name: delete_devices
DELETE FROM :"schema".devices AS d
USING unnest(%(application_codes)s::text [], %(client_ids)s::text []) AS gone (application_code, client_id)
WHERE (d.application_code, d.client_id) = (gone.application_code, gone.client_id);

-- name: delete_devices_until
-- Those that nothing newer has been heard of, so that nobody needs to know what was in them.
DELETE FROM :"schema".devices AS d
USING unnest(%(application_codes)s::text [], %(client_ids)s::text [], %(versions)s::bigint [])
    AS gone (application_code, client_id, deleted_version)
WHERE (d.application_code, d.client_id) = (gone.application_code, gone.client_id)
    AND d.last_seen_version <= gone.deleted_version
RETURNING d.application_code, d.client_id;

-- name: upsert_device_tombstones
INSERT INTO :"schema".device_tombstones AS t (application_code, client_id, deleted_version)
SELECT * FROM unnest(%(application_codes)s::text [], %(client_ids)s::text [], %(versions)s::bigint [])
ON CONFLICT (application_code, client_id) DO UPDATE
    SET deleted_version = excluded.deleted_version, recorded_at = now()
    WHERE t.deleted_version < excluded.deleted_version;

-- name: upsert_claims
INSERT INTO :"schema".push_token_claims (application_code, token_digest, client_id, claimed_version)
SELECT * FROM unnest(
    %(application_codes)s::text [], %(digests)s::bytea [], %(client_ids)s::text [], %(versions)s::bigint []
)
ON CONFLICT (application_code, token_digest) DO UPDATE
    SET client_id = excluded.client_id, claimed_version = excluded.claimed_version;

-- name: upsert_links
INSERT INTO :"schema".contact_links AS l (contact_id, application_code, client_id, linked_version)
SELECT * FROM unnest(
    %(contact_ids)s::bigint [], %(application_codes)s::text [], %(client_ids)s::text [], %(versions)s::bigint []
)
ON CONFLICT (contact_id, application_code, client_id) DO UPDATE
    SET linked_version = excluded.linked_version
    WHERE l.linked_version < excluded.linked_version;

-- name: upsert_contact_tombstones
INSERT INTO :"schema".contact_tombstones AS t (contact_id, deleted_version)
SELECT * FROM unnest(%(contact_ids)s::bigint [], %(versions)s::bigint [])
ON CONFLICT (contact_id) DO UPDATE
    SET deleted_version = excluded.deleted_version, recorded_at = now()
    WHERE t.deleted_version < excluded.deleted_version;

-- name: links
SELECT contact_id, application_code, client_id, linked_version
FROM :"schema".contact_links WHERE contact_id = ANY(%(contact_ids)s::bigint []);

-- name: update_token_status
-- A verdict counts only for the token it was given on, while the device holds it and set it no later.
UPDATE :"schema".devices AS d
SET push_token_status = v.status, push_token_status_version = v.occurred_at, updated_at = now()
FROM (
    SELECT DISTINCT ON (application_code, client_id, token_digest) *
    FROM unnest(
        %(application_codes)s::text [], %(client_ids)s::text [], %(digests)s::bytea [], %(statuses)s::text [],
        %(versions)s::bigint []
    ) AS given (application_code, client_id, token_digest, status, occurred_at)
    ORDER BY application_code, client_id, token_digest, occurred_at DESC, status
) AS v
WHERE (d.application_code, d.client_id) = (v.application_code, v.client_id)
    AND d.push_token_digest = v.token_digest
    AND d.push_token_status IN ('valid', 'invalid')
    AND d.push_token_version <= v.occurred_at
    -- Between two verdicts of one millisecond `invalid` stands: a bad token costs more than a good one left out.
    AND (d.push_token_status_version < v.occurred_at
        OR (d.push_token_status_version = v.occurred_at AND v.status = 'invalid'));
