-- An orphan is a device that is silent since before a moment. What that means is stated once, as :silent_since in
-- clientmgr/devices/queries.py: who searches, who looks again and who counts use the same expression.

-- name: delete_orphans
-- Looks again at each: one that has a contact by now, or gave a sign of life meanwhile, is spared. The tombstone stands at the last
-- that was heard of the device, so that late news can't bring it back and a new life can.
WITH gone AS (
    DELETE FROM :"schema".devices AS d
    USING unnest(%(application_codes)s::text [], %(client_ids)s::text []) AS candidate (application_code, client_id)
    WHERE (d.application_code, d.client_id) = (candidate.application_code, candidate.client_id)
        AND :silent_since < %(orphaned_before)s
    RETURNING d.device_hash, d.last_seen_version
),

buried AS (
    INSERT INTO :"schema".device_tombstones AS t (device_hash, deleted_version)
    SELECT device_hash, last_seen_version FROM gone WHERE device_hash IS NOT NULL
    ON CONFLICT (device_hash) DO UPDATE
        SET deleted_version = excluded.deleted_version, recorded_at = excluded.recorded_at
        WHERE t.deleted_version < excluded.deleted_version
)

SELECT count(*) FROM gone;

-- name: count_orphans
SELECT count(*)
FROM clientmgr.orphan_candidates AS c
JOIN :"schema".devices AS d USING (application_code, client_id)
WHERE c.customer_id = %(customer_id)s AND :silent_since < %(orphaned_before)s;

-- name: count_devices
SELECT count(*) FROM :"schema".devices;
