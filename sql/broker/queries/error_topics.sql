-- Messages that a daemon gave up on, in the topics that it puts them into.

-- name: page
-- The newest first. Retries of a group (group_id) repeat a message: the message itself is shown once.
SELECT m.c_offset, m.host_id AS tenant, m.user_id AS key, m.payload AS data, m.attributes, m.published_at,
    h.action, h.handled_by, h.handled_at
FROM clientmgr.log_counter AS c
JOIN clientmgr.outbox_message_t AS m ON m.topic_id = c.id
LEFT JOIN clientmgr.error_messages_handled AS h ON (h.topic_id, h.c_offset) = (m.topic_id, m.c_offset)
WHERE c.topic = %(topic)s AND m.group_id IS NULL
    AND (%(before)s::bigint IS NULL OR m.c_offset < %(before)s)
    AND (%(offsets)s::bigint[] IS NULL OR m.c_offset = ANY (%(offsets)s))
    AND (%(open)s::boolean IS NULL OR (h.c_offset IS NULL) = %(open)s)
ORDER BY m.c_offset DESC LIMIT %(limit)s;

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

-- name: mark
-- Whoever comes second finds the mark and gets no row back: nothing is replayed twice by accident.
INSERT INTO clientmgr.error_messages_handled (topic_id, c_offset, action, handled_by)
SELECT c.id, m.c_offset, %(action)s, %(handled_by)s
FROM clientmgr.log_counter AS c
JOIN clientmgr.outbox_message_t AS m ON m.topic_id = c.id
WHERE c.topic = %(topic)s AND m.group_id IS NULL AND m.c_offset = ANY (%(offsets)s::bigint[])
ORDER BY m.c_offset
ON CONFLICT (topic_id, c_offset) DO NOTHING
RETURNING c_offset;

-- name: targets
SELECT topic FROM clientmgr.log_counter WHERE topic ~ '^sending-(batch|tx)-devicemapper-' ORDER BY topic;

-- name: forget_trimmed
-- Marks of messages that are gone.
DELETE FROM clientmgr.error_messages_handled AS h
WHERE NOT EXISTS (
    SELECT FROM clientmgr.outbox_message_t AS m WHERE (m.topic_id, m.c_offset) = (h.topic_id, h.c_offset)
);
