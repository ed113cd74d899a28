-- name: live
-- Keys that count now. A customer that is being deleted has none any more.
-- Web pages may use one from where the key says, or its application's configuration.
SELECT k.key_id, k.customer_id, k.application_code, k.kind, k.secret_hash,
    k.origins || coalesce(a.web_origins, '{}') AS origins, k.expires_at
FROM clientmgr.intake_keys AS k
JOIN clientmgr.tenants AS t USING (customer_id)
LEFT JOIN clientmgr.applications AS a ON (a.customer_id, a.application_code) = (k.customer_id, k.application_code)
WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
    AND t.status IN ('activating', 'active');

-- name: list
SELECT
    key_id, customer_id, application_code, name, kind, origins, created_by, created_at, expires_at, revoked_by,
    revoked_at,
    CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= now() THEN 'expired' ELSE 'live' END AS state
FROM clientmgr.intake_keys
WHERE (%(customer_id)s::bigint IS NULL OR customer_id = %(customer_id)s::bigint)
    AND (%(key_id)s::text IS NULL OR key_id = %(key_id)s::text)
ORDER BY customer_id, application_code, name, created_at, key_id;

-- name: lock
-- Two who make a key of one name at once see each other's.
SELECT pg_advisory_xact_lock(
    hashtextextended(format('intake_keys %%s %%s %%s', %(customer_id)s::bigint, %(application_code)s::text, %(name)s::text), 0)
);

-- name: live_of_name
SELECT count(*) FROM clientmgr.intake_keys
WHERE customer_id = %(customer_id)s AND application_code = %(application_code)s AND name = %(name)s
    AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now());

-- name: create
INSERT INTO clientmgr.intake_keys
    (key_id, customer_id, application_code, name, kind, secret_hash, origins, created_by, expires_at)
VALUES (
    %(key_id)s, %(customer_id)s, %(application_code)s, %(name)s, %(kind)s, %(secret_hash)s, %(origins)s::text [],
    %(created_by)s, now() + %(lifetime)s::interval
);

-- name: expire
-- Never later than it would have.
UPDATE clientmgr.intake_keys
SET expires_at = least(expires_at, now() + %(lifetime)s::interval)
WHERE key_id = %(key_id)s;

-- name: revoke
-- No row comes back where it was revoked already.
UPDATE clientmgr.intake_keys SET revoked_at = now(), revoked_by = %(revoked_by)s
WHERE key_id = %(key_id)s AND revoked_at IS NULL
RETURNING key_id;
