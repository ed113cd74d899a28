-- Hashes that have done their work, for one tenant. Each statement deletes one portion: it is repeated until none is left.
-- A version is a time in epoch milliseconds.

-- name: device_tombstones
DELETE FROM :"schema".device_tombstones WHERE device_hash = ANY (ARRAY(
    SELECT device_hash FROM :"schema".device_tombstones WHERE recorded_at < now() - %(keep)s::interval LIMIT %(most)s
));

-- name: contact_tombstones
DELETE FROM :"schema".contact_tombstones WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM :"schema".contact_tombstones WHERE recorded_at < now() - %(keep)s::interval LIMIT %(most)s
));

-- name: links_to_gone_contacts
-- Of a device that lives: each becomes what it counts as, an unlink of its version. A link that a merge passed on has no
-- id of its own and may be somebody's.
WITH old AS (
    SELECT l.device_hash, l.linked_version, l.contact_hash FROM :"schema".contact_links AS l
    WHERE l.contact_id IS NULL AND l.contact_hash <> ''
        AND l.linked_version < extract(epoch FROM now() - %(keep)s::interval) * 1000
        AND NOT EXISTS (SELECT FROM :"schema".contact_tombstones AS t WHERE t.contact_hash = l.contact_hash)
        AND NOT EXISTS (
            SELECT FROM :"schema".contact_merges AS m
            WHERE m.from_contact_hash = l.contact_hash AND m.merged_version >= l.linked_version
        )
    LIMIT %(most)s
),

unlinked AS (
    INSERT INTO :"schema".contact_links (device_hash, linked_version, contact_hash)
    SELECT DISTINCT device_hash, linked_version, ''::bytea FROM old ON CONFLICT DO NOTHING
)

-- By key: a ctid means nothing on a Citus cluster's coordinator, through which these rows pass.
DELETE FROM :"schema".contact_links AS l USING old
WHERE (l.device_hash, l.linked_version, l.contact_hash) = (old.device_hash, old.linked_version, old.contact_hash);

-- name: links_of_gone_devices
DELETE FROM :"schema".contact_links WHERE ctid = ANY (ARRAY(
    SELECT l.ctid FROM :"schema".contact_links AS l
    WHERE l.linked_version < extract(epoch FROM now() - %(keep)s::interval) * 1000
        AND NOT EXISTS (SELECT FROM :"schema".devices AS d WHERE d.device_hash = l.device_hash)
        AND NOT EXISTS (SELECT FROM :"schema".device_tombstones AS t WHERE t.device_hash = l.device_hash)
    LIMIT %(most)s
));

-- name: repeated_links
-- A device that links to its contact daily: of a run of links to one contact the first and the last tell all.
DELETE FROM :"schema".contact_links WHERE ctid = ANY (ARRAY(
    SELECT run.ctid FROM (
        SELECT ctid, linked_version, contact_hash,
            lag(contact_hash) OVER links AS before, lead(contact_hash) OVER links AS after
        FROM :"schema".contact_links
        WINDOW links AS (PARTITION BY device_hash ORDER BY linked_version, contact_hash)
    ) AS run
    WHERE run.linked_version < extract(epoch FROM now() - %(keep)s::interval) * 1000
        AND run.before = run.contact_hash AND run.after = run.contact_hash
    LIMIT %(most)s
));

-- name: claims_of_gone_devices
DELETE FROM :"schema".push_token_claims WHERE token_hash = ANY (ARRAY(
    SELECT c.token_hash FROM :"schema".push_token_claims AS c
    WHERE c.claimed_version < extract(epoch FROM now() - %(keep)s::interval) * 1000
        AND NOT EXISTS (SELECT FROM :"schema".devices AS d WHERE d.device_hash = c.device_hash)
        AND NOT EXISTS (SELECT FROM :"schema".device_tombstones AS t WHERE t.device_hash = c.device_hash)
    LIMIT %(most)s
));

-- name: merges
-- One that still says whose the link of a device is stays, be it through other merges.
DELETE FROM :"schema".contact_merges WHERE ctid = ANY (ARRAY(
    SELECT m.ctid FROM :"schema".contact_merges AS m
    WHERE m.recorded_at < now() - %(keep)s::interval
        AND NOT EXISTS (
            SELECT FROM :"schema".contact_links AS l
            WHERE l.contact_hash = m.from_contact_hash AND l.contact_hash <> ''
        )
        AND NOT EXISTS (SELECT FROM :"schema".contact_merges AS b WHERE b.into_contact_hash = m.from_contact_hash)
    LIMIT %(most)s
));

-- name: verdicts
DELETE FROM :"schema".push_token_verdicts WHERE token_hash = ANY (ARRAY(
    SELECT token_hash FROM :"schema".push_token_verdicts
    WHERE recorded_at < now() - %(keep_verdicts)s::interval LIMIT %(most)s
));
