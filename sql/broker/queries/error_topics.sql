-- Messages that a daemon gave up on, in the topics that it puts them into.

-- name: counts
-- Of each topic: open messages among the newest `look_at`, and those of the last day; whether there may be more.
SELECT c.topic, count(*) FILTER (WHERE NOT newest.handled) AS open,
    count(*) FILTER (WHERE newest.published_at > now() - interval '24 hours') AS last_day, count(*) AS kept,
    count(*) >= %(look_at)s AS is_at_least
FROM clientmgr.log_counter AS c
CROSS JOIN LATERAL (
    SELECT m.published_at, EXISTS (
        SELECT FROM clientmgr.error_messages_handled AS h WHERE (h.topic_id, h.c_offset) = (m.topic_id, m.c_offset)
    ) AS handled
    FROM clientmgr.outbox_message_t AS m
    WHERE m.topic_id = c.id AND m.group_id IS NULL ORDER BY m.c_offset DESC LIMIT %(look_at)s
) AS newest
WHERE c.topic = ANY (%(topics)s::text[])
GROUP BY c.topic ORDER BY c.topic;

-- name: forget_trimmed
-- Marks of messages that are gone.
DELETE FROM clientmgr.error_messages_handled AS h
WHERE NOT EXISTS (
    SELECT FROM clientmgr.outbox_message_t AS m WHERE (m.topic_id, m.c_offset) = (h.topic_id, h.c_offset)
);
