-- What is not as it should be, in the order it is repaired. settled: what changed after this moment may still be under way.

-- name: drift
SELECT kind, customer_id, asked_at, detail
FROM (
    -- Of a customer who is wanted back by now no time: finishing the deletion is not to count as asking for it again.
    SELECT 1 AS rank, 'unfinished deletion' AS kind, t.customer_id,
        CASE WHEN w.wish = 'deleted' THEN w.asked_at END AS asked_at,
        'deleting since ' || to_char(t.updated_at, 'YYYY-MM-DD HH24:MI') AS detail
    FROM clientmgr.tenants AS t LEFT JOIN clientmgr.tenant_wishes AS w USING (customer_id)
    WHERE t.status = 'deleting' AND t.updated_at < %(settled)s
    UNION ALL
    SELECT 2, 'unfinished activation', t.customer_id, w.asked_at,
        'activating since ' || to_char(t.updated_at, 'YYYY-MM-DD HH24:MI')
    FROM clientmgr.tenants AS t LEFT JOIN clientmgr.tenant_wishes AS w USING (customer_id)
    WHERE t.status = 'activating' AND t.updated_at < %(settled)s
    UNION ALL
    -- The sensor notes the wish, and a run that is still to come does it.
    SELECT 3, 'deletion not begun', t.customer_id, w.asked_at, 'asked for by ' || w.actor
    FROM clientmgr.tenants AS t JOIN clientmgr.tenant_wishes AS w USING (customer_id)
    WHERE w.wish = 'deleted' AND t.status IN ('activating', 'active') AND w.updated_at < %(settled)s
    UNION ALL
    -- Of an activation wish and status change in one transaction: where they differ, nobody is at it. So it is when a
    -- customer is wanted back while its deletion is under way.
    SELECT 4, 'activation not begun', w.customer_id, w.asked_at, 'asked for by ' || w.actor
    FROM clientmgr.tenant_wishes AS w LEFT JOIN clientmgr.tenants AS t USING (customer_id)
    WHERE w.wish = 'active' AND (t.status IS NULL OR t.status = 'deleted')
    UNION ALL
    SELECT 5, 'schema missing', t.customer_id, NULL, 'active at version ' || t.schema_version
    FROM clientmgr.tenants AS t
    WHERE t.status = 'active'
        AND NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = clientmgr.tenant_schema(t.customer_id))
    UNION ALL
    SELECT 6, CASE WHEN w.wish = 'deleted' THEN 'schema of a deleted customer' ELSE 'schema of nobody' END,
        s.customer_id, w.asked_at, 'the registry says ' || coalesce(t.status, 'nothing')
    FROM (
        SELECT clientmgr.customer_of_schema(nspname) AS customer_id FROM pg_namespace
        WHERE clientmgr.customer_of_schema(nspname) IS NOT NULL
    ) AS s
    LEFT JOIN clientmgr.tenants AS t USING (customer_id)
    LEFT JOIN clientmgr.tenant_wishes AS w USING (customer_id)
    WHERE t.status IS NULL OR t.status = 'deleted'
) AS found
ORDER BY rank, customer_id
LIMIT %(most)s;

-- name: lock_registry
-- Nobody registers meanwhile: a schema of nobody stays one until it is gone.
LOCK TABLE clientmgr.tenants IN SHARE ROW EXCLUSIVE MODE;
