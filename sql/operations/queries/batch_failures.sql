-- name: forget
DELETE FROM clientmgr.batch_failures WHERE run_id = %(run_id)s AND step = %(step)s;

-- name: record
INSERT INTO clientmgr.batch_failures (run_id, step, customer_id, error)
SELECT %(run_id)s, %(step)s, failed.customer_id, failed.error
FROM unnest(%(customers)s::bigint [], %(errors)s::text []) AS failed (customer_id, error)
-- One that was deleted meanwhile must not come back.
WHERE NOT EXISTS (
    SELECT FROM clientmgr.tenants AS t
    WHERE t.customer_id = failed.customer_id AND t.status IN ('deleting', 'deleted')
);

-- name: list
SELECT customer_id, error FROM clientmgr.batch_failures
WHERE run_id = %(run_id)s AND step = %(step)s ORDER BY customer_id;
