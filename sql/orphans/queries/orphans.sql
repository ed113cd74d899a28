-- name: record_searches
-- Of customers that nobody needs to search. Those that Spark searched are noted with what it found (results/).
INSERT INTO clientmgr.orphan_searches (customer_id, searched_at, threshold_days, candidates, run_id)
SELECT wanted.customer_id, %(searched_at)s, %(threshold_days)s, count(c.customer_id), %(run_id)s
FROM unnest(%(customers)s::bigint []) AS wanted (customer_id)
LEFT JOIN clientmgr.orphan_candidates AS c USING (customer_id)
GROUP BY wanted.customer_id
-- In order, or two runs wait for each other.
ORDER BY wanted.customer_id
ON CONFLICT (customer_id) DO UPDATE SET
    searched_at = excluded.searched_at,
    threshold_days = excluded.threshold_days,
    candidates = excluded.candidates,
    run_id = excluded.run_id
RETURNING customer_id, candidates;

-- name: searched
SELECT customer_id, candidates FROM clientmgr.orphan_searches WHERE customer_id = ANY(%(customers)s::bigint []);

-- name: count_candidates
-- No row: nobody has looked.
SELECT (SELECT count(*) FROM clientmgr.orphan_candidates AS c WHERE c.customer_id = s.customer_id)
FROM clientmgr.orphan_searches AS s WHERE s.customer_id = %(customer_id)s;

-- name: next_candidates
SELECT application_code, client_id FROM clientmgr.orphan_candidates
WHERE customer_id = %(customer_id)s
ORDER BY application_code, client_id
LIMIT %(limit)s;

-- name: forget_candidates
-- Locked by key, as a search that replaces them does (results/orphan_candidates.sql).
WITH done AS MATERIALIZED (
    SELECT c.ctid FROM clientmgr.orphan_candidates AS c
    JOIN unnest(%(application_codes)s::text [], %(client_ids)s::text []) AS gone (application_code, client_id)
        USING (application_code, client_id)
    WHERE c.customer_id = %(customer_id)s
    ORDER BY c.application_code, c.client_id
    FOR UPDATE OF c
)

DELETE FROM clientmgr.orphan_candidates WHERE ctid IN (SELECT d.ctid FROM done AS d);

-- name: forget_all_candidates
WITH earlier AS MATERIALIZED (
    SELECT c.ctid FROM clientmgr.orphan_candidates AS c
    WHERE c.customer_id = ANY(%(customers)s::bigint [])
    ORDER BY c.customer_id, c.application_code, c.client_id
    FOR UPDATE
)

DELETE FROM clientmgr.orphan_candidates WHERE ctid IN (SELECT e.ctid FROM earlier AS e);

-- name: record_result
INSERT INTO clientmgr.orphan_deletion_results
    (run_id, customer_id, outcome, devices, candidates, deleted, spared, attempts, error)
SELECT
    %(run_id)s, t.customer_id, %(outcome)s, %(devices)s, %(candidates)s, %(deleted)s, %(spared)s, %(attempts)s,
    %(error)s
-- One that was deleted meanwhile must not come back.
FROM clientmgr.tenants AS t WHERE t.customer_id = %(customer_id)s AND t.status NOT IN ('deleting', 'deleted')
-- A run that Dagster tried again has one result: the last outcome, and all that it deleted.
ON CONFLICT (run_id, customer_id) DO UPDATE SET
    outcome = excluded.outcome,
    devices = excluded.devices,
    candidates = greatest(orphan_deletion_results.candidates, excluded.candidates),
    deleted = orphan_deletion_results.deleted + excluded.deleted,
    -- A dry run spares nothing twice: each of its attempts looks at all candidates.
    spared = excluded.spared + CASE WHEN excluded.outcome = 'dry run' THEN 0 ELSE orphan_deletion_results.spared END,
    attempts = orphan_deletion_results.attempts + excluded.attempts,
    error = excluded.error,
    finished_at = now();

-- name: results_of_run
SELECT customer_id, outcome, candidates, deleted, spared, devices, attempts, error
FROM clientmgr.orphan_deletion_results WHERE run_id = %(run_id)s ORDER BY customer_id;

-- name: young_candidates
-- Candidates that should not be: not old enough, by the threshold of the search that found them.
SELECT c.customer_id, count(*)
FROM clientmgr.orphan_candidates AS c
JOIN clientmgr.orphan_searches AS s USING (customer_id)
WHERE c.silent_since > c.found_at - make_interval(secs => s.threshold_days * 86400)
GROUP BY c.customer_id ORDER BY c.customer_id;
