-- name: find
SELECT a.customer_id, a.application_code, a.apple_topic, a.web_origins, a.default_language, a.updated_by, a.updated_at
FROM unnest(%(customer_ids)s::bigint[], %(application_codes)s::text[]) AS wanted (customer_id, application_code)
JOIN clientmgr.applications AS a USING (customer_id, application_code);

-- name: list
SELECT customer_id, application_code, apple_topic, web_origins, default_language, updated_by, updated_at
FROM clientmgr.applications
WHERE %(customer_id)s::bigint IS NULL OR customer_id = %(customer_id)s::bigint
ORDER BY customer_id, application_code COLLATE "C";

-- name: set
-- What is not named in `fields` stays as it is. No row comes back where nothing changed.
INSERT INTO clientmgr.applications AS a
    (customer_id, application_code, apple_topic, web_origins, default_language, updated_by)
VALUES (
    %(customer_id)s, %(application_code)s, %(apple_topic)s::text, %(web_origins)s::text[], %(default_language)s::text,
    %(updated_by)s
)
ON CONFLICT (customer_id, application_code) DO UPDATE SET
    apple_topic = CASE WHEN 'apple_topic' = ANY (%(fields)s::text[]) THEN excluded.apple_topic ELSE a.apple_topic END,
    web_origins = CASE WHEN 'web_origins' = ANY (%(fields)s::text[]) THEN excluded.web_origins ELSE a.web_origins END,
    default_language =
        CASE WHEN 'default_language' = ANY (%(fields)s::text[]) THEN excluded.default_language ELSE a.default_language END,
    updated_by = excluded.updated_by,
    updated_at = now()
WHERE 'apple_topic' = ANY (%(fields)s::text[]) AND a.apple_topic IS DISTINCT FROM excluded.apple_topic
    OR 'web_origins' = ANY (%(fields)s::text[]) AND a.web_origins IS DISTINCT FROM excluded.web_origins
    OR 'default_language' = ANY (%(fields)s::text[]) AND a.default_language IS DISTINCT FROM excluded.default_language
RETURNING true;

-- name: remove
DELETE FROM clientmgr.applications
WHERE customer_id = %(customer_id)s AND application_code = %(application_code)s
RETURNING true;
