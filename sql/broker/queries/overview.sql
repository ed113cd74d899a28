-- name: topics
SELECT id, topic, total_partitions AS partitions, next_offset - 1 AS last_offset, created_at
FROM clientmgr.log_counter
WHERE %(topic)s::text IS NULL OR topic = %(topic)s
ORDER BY topic;

-- name: browse
-- The newest below an offset. Of one tenant: among the newest %(look_at)s. What is large stays in the database.
WITH looked_at AS MATERIALIZED (
    SELECT c_offset, host_id FROM clientmgr.outbox_message_t
    WHERE topic_id = %(topic_id)s AND c_offset < %(before)s AND group_id IS NULL
    ORDER BY c_offset DESC LIMIT CASE WHEN %(tenant)s::text IS NULL THEN %(limit)s ELSE %(look_at)s END
), chosen AS (
    SELECT c_offset FROM looked_at WHERE %(tenant)s::text IS NULL OR host_id = %(tenant)s
    ORDER BY c_offset DESC LIMIT %(limit)s
)
SELECT m.c_offset, m.host_id AS tenant, m.user_id AS key, m.attributes, m.published_at, m.partition_id AS partition,
    octet_length(m.payload) AS size,
    CASE WHEN octet_length(m.payload) <= %(largest)s THEN m.payload END AS data
FROM chosen JOIN clientmgr.outbox_message_t AS m ON m.topic_id = %(topic_id)s AND m.c_offset = chosen.c_offset
ORDER BY m.c_offset DESC;
