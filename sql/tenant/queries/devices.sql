-- What the workers ask of a tenant's tables. :"schema" is the tenant's schema; keys come as arrays, rows as one JSON.
-- Times of an upsert come from the new row: on a Citus cluster DO UPDATE may call no now().
-- :info_columns, :info_assignments and :state_columns come from the registry of device fields: clientmgr/devices/queries.py.

-- name: lock_writes
-- One writer of a tenant at a time: a device that is not there yet has no row to lock, and neither has a tombstone.
-- Whoever locks several names them in order, or two of them wait for each other.
SELECT pg_advisory_xact_lock(-customer_id) FROM unnest(%(customer_ids)s::bigint []) AS tenants (customer_id);

-- name: lock_writes_on_node
-- On a Citus cluster, after `lock_writes`: the same on the node that has the tenant's tables, where it is evaluated because
-- they are named. LIMIT 0 reads none of their rows; WHERE false would be evaluated on the coordinator.
SELECT pg_advisory_xact_lock(7102071, hashint8(%(customer_id)s)) -- "low"
FROM (SELECT count(*) FROM (SELECT FROM :"schema".devices LIMIT 0) AS none) AS here;

-- name: devices
-- What is known of these devices: the row, the tombstone, or both. Not locked: the tenant's write lock is held, and a
-- lock on each row would be written to the row. clientmgr/devices/rows.py names the columns.
SELECT wanted.device_hash, d.application_code, d.client_id, t.deleted_version, t.contact_deleted_version,
    :state_columns
FROM unnest(%(devices)s::bytea [], %(application_codes)s::text [], %(client_ids)s::text [])
    AS wanted (device_hash, application_code, client_id)
LEFT JOIN :"schema".devices AS d
    ON (d.application_code, d.client_id) = (wanted.application_code, wanted.client_id)
LEFT JOIN :"schema".device_tombstones AS t ON t.device_hash = wanted.device_hash
WHERE d.client_id IS NOT NULL OR t.device_hash IS NOT NULL;

-- name: devices_by_hash
-- The same, where only their hashes are known.
SELECT wanted.device_hash, d.application_code, d.client_id, t.deleted_version, t.contact_deleted_version,
    :state_columns
FROM unnest(%(devices)s::bytea []) AS wanted (device_hash)
LEFT JOIN :"schema".devices AS d USING (device_hash)
LEFT JOIN :"schema".device_tombstones AS t USING (device_hash)
WHERE d.client_id IS NOT NULL OR t.device_hash IS NOT NULL;

-- name: claims
-- Who has claimed these tokens, and what is known of that device: columns as above, then those of the claim, then what
-- the token's provider said of it last.
SELECT c.device_hash, d.application_code, d.client_id, NULL, NULL,
    :state_columns,
    wanted.token_hash, c.claimed_version, v.verdict_version, v.status
FROM unnest(%(tokens)s::bytea []) AS wanted (token_hash)
LEFT JOIN :"schema".push_token_claims AS c USING (token_hash)
LEFT JOIN :"schema".devices AS d ON d.device_hash = c.device_hash
LEFT JOIN :"schema".push_token_verdicts AS v USING (token_hash)
WHERE c.token_hash IS NOT NULL OR v.token_hash IS NOT NULL;

-- name: contact_histories
-- All links of these devices (1), and of all contacts that they are to, or come to by merges: the merges (2) and the
-- deletions (3). Also of the contacts that are named.
WITH RECURSIVE links AS MATERIALIZED (
    SELECT l.device_hash, l.linked_version, l.contact_hash, l.contact_id
    FROM unnest(%(devices)s::bytea []) AS wanted (device_hash) JOIN :"schema".contact_links AS l USING (device_hash)
),

reached (contact_hash) AS (
    (SELECT l.contact_hash FROM links AS l UNION SELECT unnest(%(contacts)s::bytea []))
    UNION
    SELECT m.into_contact_hash
    FROM reached AS r JOIN :"schema".contact_merges AS m ON m.from_contact_hash = r.contact_hash
)

SELECT 1, l.device_hash, l.linked_version, l.contact_hash, l.contact_id FROM links AS l
UNION ALL
SELECT 2, m.from_contact_hash, m.merged_version, m.into_contact_hash, m.into_contact_id
FROM reached AS r JOIN :"schema".contact_merges AS m ON m.from_contact_hash = r.contact_hash
UNION ALL
SELECT 3, t.contact_hash, t.deleted_version, NULL, NULL
FROM reached AS r JOIN :"schema".contact_tombstones AS t USING (contact_hash);

-- name: record_merges
-- MATERIALIZED, for Citus: it adds a wrong condition to an INSERT that selects from a tenant's table itself.
WITH given AS MATERIALIZED (
    SELECT n.from_contact_hash, n.merged_version, n.into_contact_hash,
        CASE WHEN t.contact_hash IS NULL THEN n.into_contact_id END AS into_contact_id
    FROM unnest(
        %(contacts)s::bytea [], %(versions)s::bigint [], %(into)s::bytea [], %(into_contact_ids)s::bigint []
    ) AS n (from_contact_hash, merged_version, into_contact_hash, into_contact_id)
    LEFT JOIN (SELECT DISTINCT contact_hash FROM :"schema".contact_tombstones) AS t
        ON t.contact_hash = n.into_contact_hash
)

INSERT INTO :"schema".contact_merges (from_contact_hash, merged_version, into_contact_hash, into_contact_id)
SELECT * FROM given
ON CONFLICT DO NOTHING;

-- name: devices_ever_of
-- Devices that were linked to one of these contacts, or to one that was merged into it on the way.
WITH RECURSIVE holders (contact_hash) AS (
    SELECT unnest(%(contacts)s::bytea [])
    UNION
    SELECT m.from_contact_hash
    FROM holders AS h JOIN :"schema".contact_merges AS m ON m.into_contact_hash = h.contact_hash
)

SELECT DISTINCT l.device_hash
FROM holders AS h JOIN :"schema".contact_links AS l USING (contact_hash) WHERE l.contact_hash <> '';

-- name: deleted_contacts
-- Those of these contacts that are deleted.
SELECT DISTINCT t.contact_hash
FROM unnest(%(contacts)s::bytea []) AS wanted (contact_hash) JOIN :"schema".contact_tombstones AS t USING (contact_hash);

-- name: contacts_to_delete
-- (1) A row for each link of every device that ever was one of these contacts', with what its row says of it now; and
-- (2) the merges by which links came to them.
WITH RECURSIVE holders (contact_hash) AS (
    SELECT unnest(%(contacts)s::bytea [])
    UNION
    SELECT m.from_contact_hash
    FROM holders AS h JOIN :"schema".contact_merges AS m ON m.into_contact_hash = h.contact_hash
),

affected AS (
    SELECT DISTINCT l.device_hash
    FROM holders AS h JOIN :"schema".contact_links AS l USING (contact_hash) WHERE l.contact_hash <> ''
)

SELECT 1, l.device_hash, l.linked_version, l.contact_hash, d.last_seen_version, d.contact_id
FROM affected AS a
JOIN :"schema".contact_links AS l USING (device_hash)
LEFT JOIN :"schema".devices AS d USING (device_hash)
UNION ALL
SELECT 2, m.from_contact_hash, m.merged_version, m.into_contact_hash, NULL, NULL
FROM holders AS h JOIN :"schema".contact_merges AS m ON m.from_contact_hash = h.contact_hash;

-- A contact's deletion is the next four, in this order, and delete_devices for the devices of which nothing newer is known,
-- so that nobody needs to know what was in them. In one statement Citus could not find its way through them.

-- name: record_contact_deletions
INSERT INTO :"schema".contact_tombstones (contact_hash, deleted_version)
SELECT * FROM unnest(%(contacts)s::bytea [], %(versions)s::bigint []) ON CONFLICT DO NOTHING;

-- name: forget_links
-- `held`: up to when a contact's links are links of a deleted one. For ever its own, and those of a merged one until its
-- merge. No rule looks at the id of a contact that a merge has passed on.
WITH RECURSIVE held (contact_hash, until) AS (
    SELECT unnest(%(contacts)s::bytea []), 9223372036854775807
    UNION
    SELECT m.from_contact_hash, m.merged_version
    FROM held AS h JOIN :"schema".contact_merges AS m ON m.into_contact_hash = h.contact_hash
)

UPDATE :"schema".contact_links AS l SET contact_id = NULL
FROM held AS h
WHERE l.contact_hash = h.contact_hash AND l.contact_hash <> '' AND l.contact_id IS NOT NULL
    AND l.linked_version <= h.until;

-- name: forget_merges
-- `held` as in forget_links.
WITH RECURSIVE held (contact_hash, until) AS (
    SELECT unnest(%(contacts)s::bytea []), 9223372036854775807
    UNION
    SELECT m.from_contact_hash, m.merged_version
    FROM held AS h JOIN :"schema".contact_merges AS m ON m.into_contact_hash = h.contact_hash
),

-- Where merges of one millisecond lead from a contact. One that they lead back to may have the links in the end.
led (contact_hash, at, to_contact_hash) AS (
    SELECT h.contact_hash, h.until, h.contact_hash FROM held AS h
    UNION
    SELECT l.contact_hash, l.at, m.into_contact_hash
    FROM led AS l
    JOIN :"schema".contact_merges AS m ON m.from_contact_hash = l.to_contact_hash AND m.merged_version = l.at
)

UPDATE :"schema".contact_merges AS m SET into_contact_id = NULL
FROM held AS h
WHERE m.into_contact_hash = h.contact_hash AND m.into_contact_id IS NOT NULL AND (
    m.merged_version < h.until
    OR (m.merged_version = h.until AND NOT EXISTS (
        SELECT FROM led AS l
        WHERE l.contact_hash = m.into_contact_hash AND l.at = m.merged_version
            AND l.to_contact_hash = m.from_contact_hash
    ))
);

-- name: bury_with_contacts
INSERT INTO :"schema".device_tombstones AS t (device_hash, contact_deleted_version)
SELECT * FROM unnest(%(devices)s::bytea [], %(device_versions)s::bigint [])
ON CONFLICT (device_hash) DO UPDATE
    SET contact_deleted_version = excluded.contact_deleted_version, recorded_at = excluded.recorded_at
    WHERE t.contact_deleted_version < excluded.contact_deleted_version;

-- name: upsert_devices
INSERT INTO :"schema".devices AS d (
    device_hash, application_code, client_id, contact_id, contact_version, push_token, push_token_kind, push_token_hash,
    push_token_status, push_token_version, push_token_status_version, web_push, last_seen_version, info_versions,
    :info_columns, provider, last_seen_at, orphaned_since
)
SELECT
    n.device_hash, n.application_code, n.client_id, n.contact_id, n.contact_version, n.push_token, n.push_token_kind,
    n.push_token_hash, n.push_token_status, n.push_token_version, n.push_token_status_version, n.web_push,
    n.last_seen_version, n.info_versions, :info_columns, n.provider,
    to_timestamp(n.last_seen_version / 1000.0),
    n.orphaned_since
FROM json_populate_recordset(CAST(NULL AS :"schema".devices), %(rows)s) AS n
ORDER BY n.application_code, n.client_id
ON CONFLICT (application_code, client_id) DO UPDATE SET
    device_hash = excluded.device_hash,
    contact_id = excluded.contact_id,
    contact_version = excluded.contact_version,
    push_token = excluded.push_token,
    push_token_kind = excluded.push_token_kind,
    push_token_hash = excluded.push_token_hash,
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
    updated_at = excluded.updated_at;

-- name: known
-- What the tables know of: (1) these devices, (2) these tokens, (3) contacts that are not just any.
SELECT 1, wanted.device_hash
FROM unnest(%(devices)s::bytea [], %(application_codes)s::text [], %(client_ids)s::text [])
    AS wanted (device_hash, application_code, client_id)
LEFT JOIN :"schema".devices AS d
    ON (d.application_code, d.client_id) = (wanted.application_code, wanted.client_id)
LEFT JOIN :"schema".device_tombstones AS t ON t.device_hash = wanted.device_hash
LEFT JOIN LATERAL (
    SELECT true AS found FROM :"schema".contact_links AS l WHERE l.device_hash = wanted.device_hash LIMIT 1
) AS l ON true
WHERE d.client_id IS NOT NULL OR t.device_hash IS NOT NULL OR l.found
UNION ALL
SELECT 2, wanted.token_hash
FROM unnest(%(tokens)s::bytea []) AS wanted (token_hash)
LEFT JOIN :"schema".push_token_claims AS c USING (token_hash)
LEFT JOIN :"schema".push_token_verdicts AS v USING (token_hash)
WHERE c.token_hash IS NOT NULL OR v.token_hash IS NOT NULL
UNION ALL
SELECT 3, wanted.contact_hash
FROM unnest(%(contacts)s::bytea []) AS wanted (contact_hash)
LEFT JOIN LATERAL (
    SELECT true AS found FROM :"schema".contact_tombstones AS t WHERE t.contact_hash = wanted.contact_hash LIMIT 1
) AS t ON true
LEFT JOIN LATERAL (
    SELECT true AS found FROM :"schema".contact_merges AS m WHERE m.from_contact_hash = wanted.contact_hash LIMIT 1
) AS m ON true
WHERE t.found OR m.found;

-- name: copy_devices
-- clientmgr/devices/imports/copying.py writes the columns in this order.
COPY :"schema".devices (
    device_hash, application_code, client_id, contact_id, contact_version, push_token, push_token_kind, push_token_hash,
    push_token_status, push_token_version, push_token_status_version, web_push, last_seen_version, info_versions,
    :info_columns, provider, last_seen_at, orphaned_since
) FROM STDIN;

-- name: copy_links
COPY :"schema".contact_links (device_hash, linked_version, contact_hash, contact_id) FROM STDIN;

-- name: copy_claims
COPY :"schema".push_token_claims (token_hash, device_hash, claimed_version) FROM STDIN;

-- name: delete_devices
DELETE FROM :"schema".devices AS d
USING unnest(%(devices)s::bytea []) AS gone (device_hash)
WHERE d.device_hash = gone.device_hash;

-- name: upsert_device_tombstones
INSERT INTO :"schema".device_tombstones (device_hash, deleted_version, contact_deleted_version)
SELECT * FROM unnest(%(devices)s::bytea [], %(versions)s::bigint [], %(contact_versions)s::bigint [])
ON CONFLICT (device_hash) DO UPDATE SET
    deleted_version = excluded.deleted_version,
    contact_deleted_version = excluded.contact_deleted_version,
    recorded_at = excluded.recorded_at;

-- name: upsert_claims
INSERT INTO :"schema".push_token_claims (token_hash, device_hash, claimed_version)
SELECT * FROM unnest(%(tokens)s::bytea [], %(devices)s::bytea [], %(versions)s::bigint [])
ON CONFLICT (token_hash) DO UPDATE
    SET device_hash = excluded.device_hash, claimed_version = excluded.claimed_version;

-- name: add_links
INSERT INTO :"schema".contact_links (device_hash, linked_version, contact_hash, contact_id)
SELECT * FROM unnest(
    %(devices)s::bytea [], %(versions)s::bigint [], %(contacts)s::bytea [], %(contact_ids)s::bigint []
)
ON CONFLICT DO NOTHING;

-- name: record_verdicts
-- Kept by token, so that they count whenever the token comes, and set where a device holds it and set it no later. Who
-- claimed the token last is the only one who can hold it.
WITH given AS (
    SELECT DISTINCT ON (token_hash) token_hash, status, verdict_version
    FROM unnest(%(tokens)s::bytea [], %(statuses)s::text [], %(versions)s::bigint [])
        AS verdict (token_hash, status, verdict_version)
    -- Of two verdicts of one millisecond `invalid` stands: a bad token costs more than a good one left out.
    ORDER BY token_hash, verdict_version DESC, status
),

kept AS (
    INSERT INTO :"schema".push_token_verdicts AS k (token_hash, status, verdict_version)
    SELECT token_hash, status, verdict_version FROM given
    ON CONFLICT (token_hash) DO UPDATE
        SET status = excluded.status, verdict_version = excluded.verdict_version, recorded_at = excluded.recorded_at
        WHERE k.verdict_version < excluded.verdict_version
            OR (k.verdict_version = excluded.verdict_version AND excluded.status = 'invalid')
)

UPDATE :"schema".devices AS d
SET push_token_status = v.status, push_token_status_version = v.verdict_version, updated_at = now()
FROM given AS v JOIN :"schema".push_token_claims AS c USING (token_hash)
WHERE d.device_hash = c.device_hash
    AND d.push_token_hash = v.token_hash
    AND d.push_token_status IN ('valid', 'invalid')
    AND d.push_token_version <= v.verdict_version
    AND (d.push_token_status_version < v.verdict_version
        OR (d.push_token_status_version = v.verdict_version AND v.status = 'invalid'));
