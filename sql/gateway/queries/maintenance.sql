-- What the gateway does without being called.

-- name: work
-- Which of the subscriptions that somebody reads have something due, and when the next becomes so. One read for all:
-- an idle reader must not write.
SELECT wanted.id, s.id IS NULL OR s.detached AS gone,
    coalesce(c.next_offset < least(l.next_offset, s.end_offset), false)
        OR EXISTS (SELECT FROM clientmgr.gateway_freed_keys AS f WHERE f.subscription_id = s.id) AS has_new,
    extract(epoch FROM (next.available_at - clock_timestamp()))::float8 AS due_in_s
FROM unnest(%(ids)s::bigint[]) AS wanted (id)
LEFT JOIN clientmgr.gateway_subscriptions AS s ON s.id = wanted.id
LEFT JOIN clientmgr.gateway_cursors AS c ON c.subscription_id = s.id
LEFT JOIN clientmgr.log_counter AS l ON l.id = s.topic_id
LEFT JOIN LATERAL (
    SELECT d.available_at FROM clientmgr.gateway_deliveries AS d
    WHERE d.subscription_id = s.id AND d.available_at < 'infinity' ORDER BY d.available_at LIMIT 1
) AS next ON true;

-- name: with_dead_letters
SELECT s.name FROM clientmgr.gateway_subscriptions AS s
CROSS JOIN LATERAL (
    SELECT FROM clientmgr.gateway_deliveries AS d
    WHERE d.subscription_id = s.id AND d.available_at <= clock_timestamp() AND d.available_at < 'infinity'
        AND d.attempt >= s.max_delivery_attempts
    LIMIT 1
) AS exhausted
WHERE s.dead_letter_topic IS NOT NULL;

-- name: subscription_names
SELECT name FROM clientmgr.gateway_subscriptions ORDER BY name;

-- name: apply_retention
SELECT clientmgr.gateway_tidy(%(name)s);

-- name: forget_acknowledged
-- Longer than any client repeats an acknowledgement.
DELETE FROM clientmgr.gateway_acknowledged WHERE acknowledged_at < now() - interval '15 minutes';

-- name: forget_freed_keys
-- Of subscriptions that were deleted while one of their messages was acknowledged.
DELETE FROM clientmgr.gateway_freed_keys AS f
WHERE NOT EXISTS (SELECT FROM clientmgr.gateway_subscriptions AS s WHERE s.id = f.subscription_id);

-- name: advance_retention_groups
UPDATE clientmgr.consumer_offsets AS o SET next_offset = t.floor, updated_at = now()
FROM (
    SELECT g.name, g.topic_id, clientmgr.gateway_offset_at(g.topic_id, now() - g.retention) AS floor
    FROM clientmgr.gateway_topics AS g WHERE g.retention IS NOT NULL AND g.deleted_at IS NULL
) AS t
WHERE o.group_id = t.name AND o.topic_id = t.topic_id AND o.next_offset < t.floor;
