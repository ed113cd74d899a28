-- What the writer of Spark's results does with `orphan_candidates`.

-- name: staged
SELECT count(*) FROM clientmgr.orphan_candidates_staged WHERE attempt_id = ANY(%(attempts)s::text []);

-- name: clear
DELETE FROM clientmgr.orphan_candidates WHERE customer_id = ANY(%(customers)s::bigint []);

-- name: move
INSERT INTO clientmgr.orphan_candidates (customer_id, application_code, client_id, silent_since, found_at)
SELECT s.customer_id, s.application_code, s.client_id, s.silent_since, s.found_at
FROM clientmgr.orphan_candidates_staged AS s
WHERE s.attempt_id = ANY(%(attempts)s::text []) AND s.customer_id = ANY(%(customers)s::bigint [])
    -- One that was deleted meanwhile must not come back.
    AND NOT EXISTS (
        SELECT FROM clientmgr.tenants AS t WHERE t.customer_id = s.customer_id AND t.status IN ('deleting', 'deleted')
    )
-- A page that grew while its table was read can give a row to two ranges.
ON CONFLICT DO NOTHING;

-- name: forget
-- And what attempts left that nobody ever named.
DELETE FROM clientmgr.orphan_candidates_staged
WHERE attempt_id = ANY(%(attempts)s::text []) OR staged_at < now() - interval '1 day';
