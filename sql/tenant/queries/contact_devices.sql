-- What senders ask of a tenant's tables. :"schema" is the tenant's schema.

-- name: find_by_contact_keys
-- The columns are in the order of ContactDevice's fields. JSON as text: hardly anybody looks into it.
SELECT d.contact_id, d.client_id, d.platform, d.provider, d.push_enabled,
    d.push_token, d.push_token_kind, d.push_token_status, d.web_push::text,
    d.language, d.application_version, d.os_version, d.sdk_version, d.device_model, d.hardware_id, d.timezone,
    (extract(epoch FROM d.last_seen_at) * 1000)::bigint,
    (extract(epoch FROM d.created_at) * 1000)::bigint,
    (extract(epoch FROM d.updated_at) * 1000)::bigint,
    d.push_settings::text, d.attributes::text
FROM :"schema".devices AS d
WHERE d.contact_id = ANY(%(contact_ids)s::bigint []) AND d.application_code = %(application_code)s::text
ORDER BY d.contact_id, d.client_id;
