-- name: read_from
-- By offset, for readers that keep their own cursor. Retries are repetitions for one group: the reader sees those of the
-- group that it names, and whoever names none has had them all.
SELECT m.c_offset, m.data, m.tenant, m.key, m.attributes, m.published_at, m.transaction_id
FROM clientmgr.log_counter AS c
CROSS JOIN LATERAL (
    SELECT
        c_offset, payload AS data, host_id AS tenant, user_id AS key, attributes, published_at, transaction_id
    FROM clientmgr.outbox_message_t
    WHERE topic_id = c.id AND c_offset > %(after_offset)s AND (group_id IS NULL OR group_id = %(group_id)s::text)
    ORDER BY c_offset LIMIT %(limit)s
) AS m
WHERE c.topic = %(topic)s
ORDER BY m.c_offset;

-- name: last_offset
SELECT next_offset - 1 FROM clientmgr.log_counter WHERE topic = %(topic)s;

-- name: group_topic_id
SELECT o.topic_id FROM clientmgr.consumer_offsets AS o JOIN clientmgr.log_counter AS c ON c.id = o.topic_id
WHERE o.group_id = %(group_id)s AND c.topic = %(topic)s LIMIT 1;

-- name: pass_cursor
-- Writes only where there is something to pass.
UPDATE clientmgr.consumer_offsets SET next_offset = %(cursor)s + 1, updated_at = now()
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND next_offset <= %(cursor)s;
