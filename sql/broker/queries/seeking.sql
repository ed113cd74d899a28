-- Moving a group to another place in its topic.

-- name: of_the_gateway
SELECT FROM clientmgr.gateway_subscriptions WHERE name = %(group_id)s
UNION ALL SELECT FROM clientmgr.gateway_topics WHERE name = %(group_id)s;

-- name: lock_partitions
SELECT partition_id, next_offset FROM clientmgr.consumer_offsets
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s ORDER BY partition_id FOR UPDATE;

-- name: partitions
SELECT partition_id, next_offset FROM clientmgr.consumer_offsets
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s ORDER BY partition_id;

-- name: bounds
-- The oldest message that is kept (null: none is), and the end of the log.
SELECT oldest.c_offset, oldest.published_at, c.next_offset
FROM clientmgr.log_counter AS c
LEFT JOIN LATERAL (
    SELECT m.c_offset, m.published_at FROM clientmgr.outbox_message_t AS m
    WHERE m.topic_id = c.id ORDER BY m.c_offset LIMIT 1
) AS oldest ON true
WHERE c.id = %(topic_id)s;

-- name: published_from
-- Of the first message from an offset on.
SELECT m.c_offset, m.published_at FROM clientmgr.outbox_message_t AS m
WHERE m.topic_id = %(topic_id)s AND m.c_offset >= %(from_offset)s ORDER BY m.c_offset LIMIT 1;

-- name: group_start
SELECT clientmgr.group_start(%(topic_id)s, %(at)s);

-- name: complete_from
-- From where on all offsets up to before_offset are there: retention trims each partition by itself.
SELECT coalesce(max(missing) + 1, %(to_offset)s) FROM (
    SELECT m.c_offset - 1 AS missing,
        coalesce(lag(m.c_offset) OVER (ORDER BY m.c_offset), %(to_offset)s - 1) <> m.c_offset - 1 AS is_gap
    FROM (
        SELECT c_offset FROM clientmgr.outbox_message_t
        WHERE topic_id = %(topic_id)s AND c_offset >= %(to_offset)s AND c_offset < %(before_offset)s
        UNION ALL SELECT %(before_offset)s
    ) AS m
) AS gaps WHERE is_gap;

-- name: count_between
-- What the group reads between where its partitions stand and where they go to, by whether it lies behind or ahead.
SELECT
    count(*) FILTER (WHERE m.c_offset < p.next_offset) AS again,
    count(*) FILTER (WHERE m.c_offset >= p.next_offset) AS skipped
FROM unnest(%(partitions)s::integer[], %(offsets)s::bigint[]) AS p (partition_id, next_offset)
JOIN clientmgr.outbox_message_t AS m ON m.topic_id = %(topic_id)s AND m.partition_id = p.partition_id
    AND m.c_offset >= least(p.next_offset, %(to_offset)s) AND m.c_offset < greatest(p.next_offset, %(to_offset)s)
WHERE m.group_id IS NULL OR m.group_id = %(group_id)s;

-- name: forget_held
-- What is read again from the log must not come from a held queue as well.
WITH again AS (
    DELETE FROM clientmgr.held_message_t AS h USING clientmgr.held_queues AS q
    WHERE q.id = h.queue_id AND q.group_id = %(group_id)s AND q.topic_id = %(topic_id)s
        AND h.c_offset >= %(to_offset)s
    RETURNING h.queue_id
)
UPDATE clientmgr.held_queues SET not_before = clock_timestamp() WHERE id IN (SELECT queue_id FROM again);

-- name: forget_empty_queues
DELETE FROM clientmgr.held_queues AS q
WHERE q.group_id = %(group_id)s AND q.topic_id = %(topic_id)s
    AND NOT EXISTS (SELECT FROM clientmgr.held_message_t AS h WHERE h.queue_id = q.id);

-- name: forget_waiting
DELETE FROM clientmgr.delayed_message_t
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND original_offset >= %(to_offset)s;

-- name: forget_retries_in_log
-- Retries of what is read again. Nobody's from now on, rather than gone: offsets have no gaps.
UPDATE clientmgr.outbox_message_t SET group_id = ''
WHERE topic_id = %(topic_id)s AND c_offset >= %(to_offset)s AND group_id = %(group_id)s
    AND original_offset >= %(to_offset)s;

-- name: move
UPDATE clientmgr.consumer_offsets
SET next_offset = %(to_offset)s, attempts = 0, failed_through = NULL, retry_at = NULL, updated_at = now()
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s;

-- name: wake
SELECT pg_notify('event_channel', %(topic_id)s::text);
