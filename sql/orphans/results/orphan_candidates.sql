-- What the writer of Spark's results does with `orphan_candidates`.

-- name: staged
SELECT count(*) FROM clientmgr.orphan_candidates_staged WHERE attempt_id = ANY(%(attempts)s::text []);

-- name: clear
-- Locked by key, as a deletion's batches lock them (queries/orphans.sql): in any other order they wait for each other.
WITH earlier AS MATERIALIZED (
    SELECT c.ctid FROM clientmgr.orphan_candidates AS c
    WHERE c.customer_id = ANY(%(customers)s::bigint [])
    ORDER BY c.customer_id, c.application_code, c.client_id
    FOR UPDATE
)

DELETE FROM clientmgr.orphan_candidates WHERE ctid IN (SELECT e.ctid FROM earlier AS e);

-- name: move
INSERT INTO clientmgr.orphan_candidates (customer_id, application_code, client_id, silent_since, found_at)
SELECT s.customer_id, s.application_code, s.client_id, s.silent_since, s.found_at
FROM clientmgr.orphan_candidates_staged AS s
WHERE s.attempt_id = ANY(%(attempts)s::text []) AND s.customer_id = ANY(%(customers)s::bigint [])
    -- One that was deleted meanwhile must not come back.
    AND NOT EXISTS (
        SELECT FROM clientmgr.tenants AS t WHERE t.customer_id = s.customer_id AND t.status IN ('deleting', 'deleted')
    )
ON CONFLICT DO NOTHING;

-- name: record
-- With the candidates: a threshold of another search would make them look too young.
INSERT INTO clientmgr.orphan_searches (customer_id, searched_at, threshold_days, candidates, run_id)
SELECT wanted.customer_id, %(searched_at)s, %(threshold_days)s, count(c.customer_id), %(run_id)s
FROM unnest(%(customers)s::bigint []) AS wanted (customer_id)
LEFT JOIN clientmgr.orphan_candidates AS c USING (customer_id)
WHERE NOT EXISTS (
    SELECT FROM clientmgr.tenants AS t WHERE t.customer_id = wanted.customer_id AND t.status IN ('deleting', 'deleted')
)
GROUP BY wanted.customer_id
ORDER BY wanted.customer_id
ON CONFLICT (customer_id) DO UPDATE SET
    searched_at = excluded.searched_at,
    threshold_days = excluded.threshold_days,
    candidates = excluded.candidates,
    run_id = excluded.run_id;

-- name: forget
-- And what attempts left that nobody ever named.
DELETE FROM clientmgr.orphan_candidates_staged
WHERE attempt_id = ANY(%(attempts)s::text []) OR staged_at < now() - interval '1 day';
