-- What was deleted since somebody last looked, by what the audit log says of it.

-- name: unobserved
-- Whoever waits longest comes first. The chains' ends are a row a customer, so a look without news costs one small join;
-- then the log is read by its key, from the last look on.
WITH changed AS (
    SELECT h.customer_id, seen.seq AS seen_seq, h.seq AS head_seq, h.hash AS head_hash
    FROM clientmgr.audit_heads AS h
    JOIN clientmgr.tenants AS t ON t.customer_id = h.customer_id AND t.status = 'active'
    LEFT JOIN clientmgr.observed_deletions AS o ON o.customer_id = h.customer_id
    CROSS JOIN LATERAL (
        -- Of a customer who came back nothing is noted, and its chain goes on: what was deleted of its earlier account is
        -- no news.
        SELECT coalesce(
            o.audit_seq,
            (
                SELECT max(a.seq) FROM clientmgr.audit_log AS a
                WHERE a.customer_id = h.customer_id AND a.action = %(account_action)s AND a.outcome = 'completed'
            ),
            0
        ) AS seq
    ) AS seen
    WHERE h.seq > seen.seq
    ORDER BY o.observed_at NULLS FIRST, h.customer_id
    LIMIT %(most)s
)
SELECT
    c.customer_id, c.seen_seq, c.head_seq, encode(c.head_hash, 'hex') AS head_hash,
    count(*) FILTER (WHERE a.action = %(contact_action)s) AS contacts,
    coalesce(sum(a.rows_affected) FILTER (WHERE a.action = %(contact_action)s), 0)::bigint AS devices_of_contacts,
    coalesce(sum(a.rows_affected), 0)::bigint AS devices,
    max(a.recorded_at) AS deleted_at
FROM changed AS c
LEFT JOIN clientmgr.audit_log AS a
    ON a.customer_id = c.customer_id AND a.seq > c.seen_seq AND a.seq <= c.head_seq AND a.action = ANY(%(actions)s)
GROUP BY c.customer_id, c.seen_seq, c.head_seq, c.head_hash
ORDER BY c.customer_id;

-- name: observed
-- A customer who was deleted meanwhile leaves no row behind.
INSERT INTO clientmgr.observed_deletions AS o (customer_id, audit_seq)
SELECT n.customer_id, n.audit_seq
FROM unnest(%(customers)s::bigint [], %(seqs)s::bigint []) AS n (customer_id, audit_seq)
JOIN clientmgr.tenants AS t ON t.customer_id = n.customer_id AND t.status = 'active'
ON CONFLICT (customer_id) DO UPDATE SET audit_seq = greatest(o.audit_seq, excluded.audit_seq), observed_at = now();
