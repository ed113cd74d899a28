-- What senders ask of a tenant's tables. :"schema" is the tenant's schema.
-- :contact_device_columns and :reported_columns come from the registry of device fields: clientmgr/devices/queries.py.

-- name: find_by_contact_keys
-- A row is a ContactDevice. Not ordered: whoever asks sorts the few devices of a contact quicker.
SELECT :contact_device_columns
FROM :"schema".devices AS d
WHERE d.contact_id = ANY(%(contact_ids)s::bigint []) AND d.application_code = %(application_code)s::text;

-- name: find_reported
-- What events have reported about these devices: whose each is (a contact's, nobody's, deleted), and where none has
-- reported that, its fields. A version of 0: no event has set this part yet.
SELECT w.client_id,
    t.device_hash IS NOT NULL OR d.contact_id IS NOT NULL OR d.contact_version > 0,
    d.info_versions::text, d.push_token_version > 0,
    (date_part('epoch', d.last_seen_at) * 1000)::bigint,
    :reported_columns
FROM unnest(%(client_ids)s::text [], %(devices)s::bytea []) AS w (client_id, device_hash)
LEFT JOIN :"schema".devices AS d
    ON d.application_code = %(application_code)s::text AND d.client_id = w.client_id
LEFT JOIN :"schema".device_tombstones AS t
    ON t.device_hash = w.device_hash AND greatest(t.deleted_version, t.contact_deleted_version) > 0
WHERE d.client_id IS NOT NULL OR t.device_hash IS NOT NULL;

-- name: find_verdicts
-- What the providers said last of these tokens. A verdict ends when the token is set anew, by whatever device.
SELECT v.token_hash, v.status
FROM unnest(%(tokens)s::bytea []) AS wanted (token_hash)
JOIN :"schema".push_token_verdicts AS v USING (token_hash)
LEFT JOIN :"schema".push_token_claims AS c USING (token_hash)
WHERE c.claimed_version IS NULL OR c.claimed_version <= v.verdict_version;

-- name: transaction_age
-- In seconds: how long the batch that we are in has been in hand.
SELECT date_part('epoch', clock_timestamp() - transaction_timestamp());

-- name: some_contacts
-- Of the application of a device that is drawn by lot: some contacts, also by lot. For sample messages.
WITH drawn AS (SELECT d.application_code FROM :"schema".devices AS d ORDER BY random() LIMIT 1)
SELECT application_code, array_agg(contact_id) FROM (
    SELECT DISTINCT d.application_code, d.contact_id
    FROM :"schema".devices AS d JOIN drawn USING (application_code)
    WHERE d.contact_id IS NOT NULL
    LIMIT 10000
) AS contacts
GROUP BY application_code;
