-- What batch work asks of a tenant as a whole. Sent to the data by Spark's tasks (clientmgr_dagster/spark/tenant_source.py);
-- only the answers travel. :info_pairs and :silent_since are stated in clientmgr/devices/queries.py.
-- A large tenant is asked slice by slice, at one moment: in_pages is a range of the table's pages, in_contacts a range of
-- contacts that no other slice has; both are true where it is asked as a whole. What is asked must add up: sums and
-- maxima over pages, distinct contacts over contacts, samples as the smallest of the smallest.

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
        count(*) FILTER (WHERE :silent_since < %(orphaned_before)s::timestamptz) AS orphans,
        count(*) FILTER (WHERE created_at > %(collected_at)s::timestamptz - interval '24 hours') AS created_24h,
        count(*) FILTER (WHERE created_at > %(collected_at)s::timestamptz - interval '7 days') AS created_7d,
        max(updated_at) AS last_write_at,
        max(d.tableoid::bigint) AS table_id
    FROM :"schema".devices AS d
    WHERE %(in_pages)s
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
        SELECT count(*)
        FROM (SELECT DISTINCT contact_id FROM :"schema".devices WHERE contact_id IS NOT NULL AND %(in_contacts)s) AS c
    ) AS contacts,
    coalesce(sum(linked_devices), 0)::bigint AS linked_devices,
    coalesce(sum(devices - linked_devices), 0)::bigint AS without_contact,
    coalesce(sum(orphans), 0)::bigint AS orphans,
    coalesce(sum(created_24h), 0)::bigint AS created_24h,
    coalesce(sum(created_7d), 0)::bigint AS created_7d,
    max(last_write_at) AS last_write_at,
    -- Of the table that the rows are in: on a Citus cluster the name stands for it, and is empty itself.
    pg_total_relation_size(coalesce(max(table_id)::oid, ':"schema".devices'::regclass)) AS table_bytes
FROM grouped;

-- name: sync_sample
-- The devices whose keys have the smallest hashes, so that DynamoDB's side picks the same ones. What is compared of them
-- is in clientmgr/tenant_metrics/sync.py; a token is there as its digest.
SELECT
    d.application_code || '#' || d.client_id AS device_key,
    chosen.sample_hash,
    d.contact_id::text AS contact_id,
    jsonb_build_object(
        :info_pairs,
        'push_token_kind', d.push_token_kind,
        'push_token', encode(sha256(convert_to(coalesce(d.push_token, d.web_push ->> 'endpoint'), 'UTF8')), 'hex'),
        'push_token_status', d.push_token_status
    )::text AS fields
FROM (
    -- Sorted without the wide columns: most rows are only hashed and forgotten.
    SELECT
        c.application_code,
        c.client_id,
        left(
            encode(
                sha256(convert_to(%(customer_id)s || '#' || c.application_code || '#' || c.client_id, 'UTF8')), 'hex'
            ),
            16
        ) COLLATE "C" AS sample_hash
    FROM :"schema".devices AS c
    WHERE c.contact_id IS NOT NULL AND %(in_pages)s
    ORDER BY sample_hash, c.application_code, c.client_id
    LIMIT %(size)s
) AS chosen
JOIN :"schema".devices AS d USING (application_code, client_id);

-- name: linked_contacts
-- The contacts that have devices or had them, each once: a deletion may take a device that was unlinked since. An id goes
-- from the links when its deletion is carried out.
SELECT contact_id FROM :"schema".devices WHERE contact_id IS NOT NULL AND %(in_contacts)s
UNION
SELECT contact_id FROM :"schema".contact_links WHERE contact_id IS NOT NULL AND %(in_contacts)s;
