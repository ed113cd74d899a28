-- name: topics
SELECT id, topic, total_partitions FROM clientmgr.log_counter
WHERE %(topic)s::text IS NULL OR topic = %(topic)s
ORDER BY id;

-- name: lock_topic_layout
-- Shared with making a group: one that is to begin at the oldest message must find it still there afterwards.
SELECT pg_advisory_xact_lock(7106407, %(topic_id)s);

-- name: trim_partition
SELECT deleted, last_offset FROM clientmgr.trim_partition(
    %(topic_id)s, %(partition_id)s, %(after_offset)s, %(keep)s, %(most)s
);
