-- name: read_from
-- By offset, for readers without a group. Retries are repetitions for one group; whoever reads the log has had them.
SELECT m.c_offset, m.data, m.tenant, m.key, m.attributes, m.published_at, m.transaction_id
FROM clientmgr.log_counter AS c
CROSS JOIN LATERAL (
    SELECT
        c_offset, payload AS data, host_id AS tenant, user_id AS key, attributes, published_at, transaction_id
    FROM clientmgr.outbox_message_t
    WHERE topic_id = c.id AND c_offset > %(after_offset)s AND group_id IS NULL
    ORDER BY c_offset LIMIT %(limit)s
) AS m
WHERE c.topic = %(topic)s
ORDER BY m.c_offset;

-- name: last_offset
SELECT next_offset - 1 FROM clientmgr.log_counter WHERE topic = %(topic)s;
