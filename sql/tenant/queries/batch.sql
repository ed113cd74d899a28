-- What batch work asks of a tenant as a whole. Sent to the data by Spark's tasks (clientmgr_dagster/spark/tenant_source.py);
-- only the answers travel.

-- name: dashboard_metrics
-- The table is read once, grouped; what is asked for besides comes from the groups and from the index on contacts.
WITH grouped AS MATERIALIZED (
    SELECT
        coalesce(platform, 'unknown') AS platform,
        provider,
        count(*) AS devices,
        count(*) FILTER (WHERE push_enabled) AS push_enabled,
        count(*) FILTER (WHERE push_token_status = 'none') AS tokens_none,
        count(*) FILTER (WHERE push_token_status = 'valid') AS tokens_valid,
        count(*) FILTER (WHERE push_token_status = 'invalid') AS tokens_invalid,
        count(*) FILTER (WHERE push_token_status = 'superseded') AS tokens_superseded,
        count(contact_id) AS linked_devices,
        count(*) FILTER (
            WHERE contact_id IS NULL AND orphaned_since < %(orphaned_before)s::timestamptz
        ) AS orphans,
        count(*) FILTER (WHERE created_at > %(collected_at)s::timestamptz - interval '24 hours') AS created_24h,
        count(*) FILTER (WHERE created_at > %(collected_at)s::timestamptz - interval '7 days') AS created_7d,
        max(updated_at) AS last_write_at
    FROM :"schema".devices
    GROUP BY 1, 2
)

SELECT
    coalesce(sum(devices), 0)::bigint AS devices,
    (
        SELECT coalesce(jsonb_object_agg(by_platform.platform, by_platform.devices), '{}')
        FROM (SELECT g.platform, sum(g.devices)::bigint AS devices FROM grouped AS g GROUP BY 1) AS by_platform
    )::text AS devices_by_platform,
    (
        SELECT coalesce(jsonb_object_agg(by_provider.provider, by_provider.devices), '{}')
        FROM (SELECT g.provider, sum(g.devices)::bigint AS devices FROM grouped AS g GROUP BY 1) AS by_provider
    )::text AS devices_by_provider,
    coalesce(sum(push_enabled), 0)::bigint AS push_enabled,
    coalesce(sum(tokens_none), 0)::bigint AS tokens_none,
    coalesce(sum(tokens_valid), 0)::bigint AS tokens_valid,
    coalesce(sum(tokens_invalid), 0)::bigint AS tokens_invalid,
    coalesce(sum(tokens_superseded), 0)::bigint AS tokens_superseded,
    (
        SELECT count(*) FROM (SELECT DISTINCT contact_id FROM :"schema".devices WHERE contact_id IS NOT NULL) AS c
    ) AS contacts,
    coalesce(sum(linked_devices), 0)::bigint AS linked_devices,
    coalesce(sum(devices - linked_devices), 0)::bigint AS without_contact,
    coalesce(sum(orphans), 0)::bigint AS orphans,
    coalesce(sum(created_24h), 0)::bigint AS created_24h,
    coalesce(sum(created_7d), 0)::bigint AS created_7d,
    max(last_write_at) AS last_write_at,
    pg_total_relation_size(':"schema".devices'::regclass) AS table_bytes
FROM grouped;

-- name: sync_sample
-- The devices whose keys have the smallest hashes: the same ones whoever asks, in whatever store.
SELECT
    contact_id, application_code, client_id,
    hardware_id, platform, application_version, device_model, os_version, sdk_version, language, timezone,
    push_enabled::text AS push_enabled, push_settings::text AS push_settings, attributes::text AS attributes,
    -- A superseded token's digest stays; the token is gone.
    CASE WHEN push_token_kind IS NOT NULL THEN encode(push_token_digest, 'hex') END AS push_token,
    md5(%(customer_id)s || '#' || contact_id || '#' || application_code || '#' || client_id) AS sample_hash
FROM :"schema".devices
WHERE contact_id IS NOT NULL
ORDER BY sample_hash, contact_id, application_code, client_id
LIMIT %(size)s;
