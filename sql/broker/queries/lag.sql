-- name: partition_lag
-- One row a topic, group and partition. Other groups' retries are not ours to read. at_most bounds what is counted.
-- Left out: groups that only hold messages (gateway_holders). They read nothing.
SELECT
    c.topic, o.group_id, o.partition_id, o.next_offset, unread.messages, oldest.published_at, o.attempts, o.retry_at
FROM clientmgr.consumer_offsets AS o
JOIN clientmgr.log_counter AS c ON c.id = o.topic_id
CROSS JOIN LATERAL (
    SELECT count(*) AS messages FROM (
        SELECT FROM clientmgr.outbox_message_t AS m
        WHERE m.topic_id = o.topic_id AND m.partition_id = o.partition_id AND m.c_offset >= o.next_offset
            AND (m.group_id IS NULL OR m.group_id = o.group_id)
        ORDER BY m.c_offset LIMIT %(at_most)s
    ) AS counted
) AS unread
LEFT JOIN LATERAL (
    SELECT coalesce(m.original_published_at, m.published_at) AS published_at FROM clientmgr.outbox_message_t AS m
    WHERE m.topic_id = o.topic_id AND m.partition_id = o.partition_id AND m.c_offset >= o.next_offset
        AND (m.group_id IS NULL OR m.group_id = o.group_id)
    ORDER BY m.c_offset LIMIT 1
) AS oldest ON true
WHERE (%(topic)s::text IS NULL OR c.topic = %(topic)s)
    AND (%(subscription)s::text IS NULL OR o.group_id = %(subscription)s)
    AND NOT EXISTS (SELECT FROM clientmgr.gateway_holders AS t WHERE t.topic_id = c.id AND t.name = o.group_id)
ORDER BY c.topic, o.group_id, o.partition_id;

-- name: set_aside
-- Waiting retries, messages that were published for later (for every group, so under a name that none can have), held
-- messages, and dead letters that nobody has replayed, by topic and group, on either transport; also of groups that are
-- gone.
SELECT s.topic, s.group_id, sum(s.waiting)::bigint, sum(s.dead)::bigint
FROM (
    SELECT c.topic, coalesce(d.group_id, '(published for later)') AS group_id, 1 AS waiting, 0 AS dead
    FROM clientmgr.delayed_message_t AS d JOIN clientmgr.log_counter AS c ON c.id = d.topic_id
    UNION ALL
    SELECT c.topic, q.group_id, 1, 0
    FROM clientmgr.held_message_t AS h JOIN clientmgr.held_queues AS q ON q.id = h.queue_id
    JOIN clientmgr.log_counter AS c ON c.id = q.topic_id
    UNION ALL
    SELECT p.topic, p.subscription, 1, 0 FROM clientmgr.pubsub_delayed AS p
    UNION ALL
    SELECT c.topic, d.group_id, 0, 1
    FROM clientmgr.dead_letter_queue AS d JOIN clientmgr.log_counter AS c ON c.id = d.topic_id
    WHERE d.replayed_at IS NULL
) AS s
WHERE (%(topic)s::text IS NULL OR s.topic = %(topic)s)
    AND (%(subscription)s::text IS NULL OR s.group_id = %(subscription)s)
GROUP BY s.topic, s.group_id;
