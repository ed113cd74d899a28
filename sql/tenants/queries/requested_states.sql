-- name: record
-- The newest request wins, and of two at the same moment the deletion. overrules: a person asks now, and that counts
-- from now on, whatever a message with a clock that is ahead has said. In key order, against deadlocks.
INSERT INTO clientmgr.tenant_wishes AS w (customer_id, wish, asked_at, actor, event_id)
SELECT n.customer_id, %(requested)s, coalesce(n.asked_at, clock_timestamp()), n.actor, n.event_id
FROM unnest(
    %(customer_ids)s::bigint [], %(asked_ats)s::timestamptz [], %(actors)s::text [], %(event_ids)s::text []
) AS n (customer_id, asked_at, actor, event_id)
ORDER BY n.customer_id
ON CONFLICT (customer_id) DO UPDATE SET
    wish = excluded.wish,
    asked_at = greatest(excluded.asked_at, w.asked_at + CASE WHEN %(overrules)s THEN interval '1 us' ELSE '0' END),
    actor = excluded.actor, event_id = excluded.event_id, updated_at = now()
WHERE %(overrules)s OR (excluded.asked_at, excluded.wish) > (w.asked_at, w.wish);

-- name: lock
-- Nobody asks for something else until the transaction ends.
SELECT wish FROM clientmgr.tenant_wishes WHERE customer_id = %(customer_id)s FOR UPDATE;

-- name: standing
SELECT customer_id FROM clientmgr.tenant_wishes
WHERE customer_id = ANY(%(customer_ids)s::bigint []) AND wish = %(requested)s;
