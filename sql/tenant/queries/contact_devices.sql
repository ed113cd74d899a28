-- What senders ask of a tenant's tables. :"schema" is the tenant's schema.

-- name: find_by_contact_keys
-- The columns are in the order of ContactDevice's fields. JSON as text: hardly anybody looks into it. date_part, not
-- extract, whose numeric is several times as slow. Not ordered: whoever asks sorts the few devices of a contact quicker.
SELECT d.contact_id, d.client_id, d.platform, d.provider, d.push_enabled,
    d.push_token, d.push_token_kind, d.push_token_status, d.web_push::text,
    d.language, d.application_version, d.os_version, d.sdk_version, d.device_model, d.hardware_id, d.timezone,
    (date_part('epoch', d.last_seen_at) * 1000)::bigint,
    (date_part('epoch', d.created_at) * 1000)::bigint,
    (date_part('epoch', d.updated_at) * 1000)::bigint,
    d.push_settings::text, d.attributes::text
FROM :"schema".devices AS d
WHERE d.contact_id = ANY(%(contact_ids)s::bigint []) AND d.application_code = %(application_code)s::text;

-- name: find_told
-- What events have told of these devices: whose each is (a contact's, nobody's, deleted), and where none has told that,
-- its fields. A version of 0: no event has set this part yet. After last_seen_at come TOKEN_FIELDS and INFO_FIELDS.
SELECT w.client_id,
    t.client_id IS NOT NULL OR d.contact_id IS NOT NULL OR d.contact_version > 0,
    d.info_versions::text, d.push_token_version > 0,
    (date_part('epoch', d.last_seen_at) * 1000)::bigint,
    d.provider, d.push_token, d.push_token_kind, d.push_token_status, d.web_push::text,
    d.hardware_id, d.platform, d.application_version, d.device_model, d.os_version, d.sdk_version, d.language,
    d.timezone, d.push_enabled, d.push_settings::text, d.attributes::text
FROM unnest(%(client_ids)s::text []) AS w (client_id)
LEFT JOIN :"schema".devices AS d
    ON d.application_code = %(application_code)s::text AND d.client_id = w.client_id
LEFT JOIN :"schema".device_tombstones AS t
    ON t.application_code = %(application_code)s::text AND t.client_id = w.client_id
WHERE d.client_id IS NOT NULL OR t.client_id IS NOT NULL;

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
