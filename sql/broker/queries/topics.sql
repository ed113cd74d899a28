-- Topics and groups: making, finding, resizing and removing them.

-- name: topic_exists
SELECT 1 FROM clientmgr.log_counter WHERE topic = %(topic)s;

-- name: create_topic
INSERT INTO clientmgr.log_counter (topic, total_partitions) VALUES (%(topic)s, %(total_partitions)s)
ON CONFLICT (topic) DO NOTHING;

-- name: missing_topics
SELECT wanted.topic FROM unnest(%(topics)s::text[]) AS wanted (topic)
WHERE NOT EXISTS (SELECT FROM clientmgr.log_counter AS c WHERE c.topic = wanted.topic);

-- name: lock_group
-- Two who make the same group at the same moment, for different topics perhaps, come one after the other.
SELECT pg_advisory_xact_lock(6779504, hashtext(%(group_id)s)); -- "grp"

-- name: lock_topic_layout
-- Making a group, trimming and resizing exclude each other, but none of them holds up publishers by this.
SELECT pg_advisory_xact_lock(7106407, id) FROM clientmgr.log_counter WHERE topic = %(topic)s; -- "log"

-- name: group_topic
SELECT c.topic, c.id
FROM clientmgr.log_counter AS c
WHERE c.id = (SELECT o.topic_id FROM clientmgr.consumer_offsets AS o WHERE o.group_id = %(group_id)s LIMIT 1);

-- name: create_group
-- At the end: publishers that have not committed yet have offsets of next_offset and above, so none of them is missed.
INSERT INTO clientmgr.consumer_offsets (group_id, topic_id, partition_id, next_offset)
SELECT %(group_id)s, c.id, p.partition_id, CASE
    WHEN %(from_start)s THEN coalesce(
        (SELECT m.c_offset FROM clientmgr.outbox_message_t AS m WHERE m.topic_id = c.id ORDER BY m.c_offset LIMIT 1),
        c.next_offset
    )
    ELSE c.next_offset
END
FROM clientmgr.log_counter AS c
CROSS JOIN LATERAL generate_series(0, c.total_partitions - 1) AS p (partition_id)
WHERE c.topic = %(topic)s;

-- name: drop_group
WITH waiting AS (DELETE FROM clientmgr.delayed_message_t WHERE group_id = %(group_id)s), pause AS (
    DELETE FROM clientmgr.paused_subscriptions WHERE group_id = %(group_id)s
), held AS (
    DELETE FROM clientmgr.held_message_t AS h USING clientmgr.held_queues AS q
    WHERE q.id = h.queue_id AND q.group_id = %(group_id)s
)
DELETE FROM clientmgr.consumer_offsets WHERE group_id = %(group_id)s;

-- name: drop_queues
DELETE FROM clientmgr.held_queues WHERE group_id = %(group_id)s;

-- name: lock_counter
SELECT id, next_offset, total_partitions FROM clientmgr.log_counter WHERE topic = %(topic)s FOR UPDATE;

-- name: lock_offsets
SELECT 1 FROM clientmgr.consumer_offsets WHERE topic_id = %(topic_id)s FOR UPDATE NOWAIT;

-- name: groups_behind
-- What only holds messages (gateway_holders) reads nothing, and so is never behind.
SELECT DISTINCT o.group_id FROM clientmgr.consumer_offsets AS o
CROSS JOIN LATERAL (
    SELECT FROM clientmgr.outbox_message_t AS m
    WHERE m.topic_id = o.topic_id AND m.partition_id = o.partition_id AND m.c_offset >= o.next_offset
    ORDER BY m.c_offset LIMIT 1
) AS unread
WHERE o.topic_id = %(topic_id)s
    AND NOT EXISTS (SELECT FROM clientmgr.gateway_holders AS t WHERE t.topic_id = o.topic_id AND t.name = o.group_id)
ORDER BY 1;

-- name: resize_counter
UPDATE clientmgr.log_counter SET total_partitions = %(total_partitions)s WHERE id = %(topic_id)s;

-- name: move_rows
-- What is kept for a later group must lie where that group will look for it, in the tenant's order.
UPDATE clientmgr.outbox_message_t SET partition_id = clientmgr.partition_of(host_id, %(total_partitions)s)
WHERE topic_id = %(topic_id)s AND partition_id <> clientmgr.partition_of(host_id, %(total_partitions)s);

-- name: move_queues
-- Held tenants stay held, in the partition where their later messages will be met.
UPDATE clientmgr.held_queues SET partition_id = clientmgr.partition_of(host_id, %(total_partitions)s)
WHERE topic_id = %(topic_id)s;

-- name: move_offsets
-- Every group has read everything: all its partitions, old and new, stand at the end. What only holds messages for a
-- topic of the gateway stays where it is, or they would be trimmed.
WITH gone AS (
    DELETE FROM clientmgr.consumer_offsets WHERE topic_id = %(topic_id)s AND partition_id >= %(total_partitions)s
)
INSERT INTO clientmgr.consumer_offsets AS o (group_id, topic_id, partition_id, next_offset)
SELECT g.group_id, %(topic_id)s, p.partition_id, CASE WHEN t.name IS NULL THEN %(next_offset)s ELSE g.held_from END
FROM (
    SELECT group_id, min(next_offset) AS held_from FROM clientmgr.consumer_offsets
    WHERE topic_id = %(topic_id)s GROUP BY group_id
) AS g
LEFT JOIN clientmgr.gateway_holders AS t ON t.topic_id = %(topic_id)s AND t.name = g.group_id
CROSS JOIN generate_series(0, %(total_partitions)s - 1) AS p (partition_id)
ON CONFLICT (group_id, topic_id, partition_id)
DO UPDATE SET next_offset = excluded.next_offset, attempts = 0, failed_through = NULL, retry_at = NULL;
