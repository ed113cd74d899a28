-- name: topics
SELECT id, topic, total_partitions AS partitions, next_offset - 1 AS last_offset, created_at
FROM clientmgr.log_counter
WHERE %(topic)s::text IS NULL OR topic = %(topic)s
ORDER BY topic;
