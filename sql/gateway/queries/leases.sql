-- Messages in hand: claimed, acknowledged, given back, forwarded to a dead-letter topic.

-- name: claim
SELECT c_offset, attempt, host_id, user_id, payload, nullif(attributes, '{}'),
    (extract(epoch FROM published_at) * 1000000)::bigint
FROM clientmgr.gateway_claim(
    %(name)s, %(wanted)s::integer, %(max_bytes)s::bigint, %(lease)s::bigint, %(lease_time)s::interval,
    %(attempt_limit)s::integer, %(settling)s::bigint[]
);

-- name: acknowledge
SELECT nth, in_use FROM clientmgr.gateway_acknowledge(
    %(name)s, %(ids)s::bigint[], %(offsets)s::bigint[], %(leases)s::bigint[], %(ages)s::float8[], %(patient)s
);

-- name: extend
SELECT nth, in_use FROM clientmgr.gateway_extend(
    %(name)s, %(ids)s::bigint[], %(offsets)s::bigint[], %(leases)s::bigint[], %(ages)s::float8[],
    %(seconds)s::integer[], %(patient)s
);

-- name: give_back
SELECT nth, in_use FROM clientmgr.gateway_give_back(
    %(name)s, %(ids)s::bigint[], %(offsets)s::bigint[], %(leases)s::bigint[], %(ages)s::float8[]
);

-- name: release
SELECT clientmgr.gateway_release(%(name)s, %(offsets)s::bigint[], %(leases)s::bigint[]);

-- name: still_leased
-- Which of a stream's messages it still has: an acknowledgement may have come through another gateway.
SELECT a.c_offset, a.lease FROM unnest(%(offsets)s::bigint[], %(leases)s::bigint[]) AS a (c_offset, lease)
CROSS JOIN LATERAL (
    SELECT d.lease, d.lease_until FROM clientmgr.gateway_deliveries AS d
    WHERE d.subscription_id = %(id)s AND d.c_offset = a.c_offset OFFSET 0
) AS held
WHERE held.lease = a.lease AND held.lease_until > clock_timestamp();

-- name: any_exhausted
SELECT EXISTS (
    SELECT FROM clientmgr.gateway_deliveries AS d
    WHERE d.subscription_id = %(id)s AND d.available_at <= clock_timestamp() AND d.available_at < 'infinity'
        AND d.attempt >= %(attempt_limit)s
);

-- name: exhausted
-- Of an ordering key only the first: those behind it have their own attempts ahead of them.
SELECT m.c_offset, d.attempt, m.host_id, m.user_id, m.payload, m.attributes, m.published_at, d.ordering_key
FROM (
    SELECT g.c_offset, g.attempt, g.ordering_key FROM clientmgr.gateway_deliveries AS g
    WHERE g.subscription_id = %(id)s AND g.available_at <= clock_timestamp() AND g.available_at < 'infinity'
        AND g.attempt >= %(attempt_limit)s
    FOR UPDATE SKIP LOCKED -- one that is being acknowledged at this moment is no dead letter
) AS d
CROSS JOIN LATERAL (
    SELECT o.* FROM clientmgr.outbox_message_t AS o
    WHERE o.topic_id = %(topic_id)s AND o.c_offset = d.c_offset OFFSET 0
) AS m
WHERE d.ordering_key = '' OR d.c_offset = (
    SELECT e.c_offset FROM clientmgr.gateway_deliveries AS e
    WHERE e.subscription_id = %(id)s AND e.ordering_key = d.ordering_key AND e.ordering_key <> ''
    ORDER BY e.c_offset LIMIT 1
)
ORDER BY m.c_offset LIMIT 100;

-- name: remove
DELETE FROM clientmgr.gateway_deliveries WHERE subscription_id = %(id)s AND c_offset = ANY (%(offsets)s::bigint[]);

-- name: promote
SELECT clientmgr.gateway_promote(%(id)s, %(keys)s::text[]);
